/* Runs a fuzz target over stored inputs, without libFuzzer: all files named as arguments, and all
 * files in named directories. Each name is printed before the input runs, so that the last name
 * printed before a crash is its input. */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, size_t size)
{
	/* exact size: sanitizers detect a read beyond it */
	uint8_t *data = malloc(size ? size : 1);
	FILE *f = fopen(path, "rb");
	int ok = data && f && fread(data, 1, size, f) == size;

	if (f)
		fclose(f);
	if (!ok) {
		fprintf(stderr, "cannot read %s\n", path);
		free(data);
		return -1;
	}
	printf("%s\n", path);
	fflush(stdout);
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	return 1;
}

/* The number of inputs run, or -1. */
static int replay(const char *path)
{
	struct dirent **names = NULL;
	char child[PATH_MAX];
	struct stat st;
	int n, rc, count = 0;

	if (stat(path, &st) < 0) {
		fprintf(stderr, "no such input: %s\n", path);
		return -1;
	}
	if (S_ISREG(st.st_mode))
		return replay_file(path, (size_t)st.st_size);
	n = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.' && count >= 0) {
			snprintf(child, sizeof(child), "%s/%s", path, names[i]->d_name);
			rc = replay(child);
			count = rc < 0 ? -1 : count + rc;
		}
		free(names[i]);
	}
	free(names);
	return n < 0 ? -1 : count;
}

int main(int argc, char **argv)
{
	int count = 0, rc;

	for (int i = 1; i < argc; i++) {
		rc = replay(argv[i]);
		if (rc < 0)
			return 1;
		count += rc;
	}
	printf("%d inputs replayed\n", count);
	return count > 0 ? 0 : 1;
}
