#include "test_files.h"

char *read_text(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = calloc(1, 65536);

	CHECK(f && text);
	CHECK(fread(text, 1, 65535, f) > 0);
	fclose(f);
	return text;
}
void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	CHECK(f);
	CHECK(fputs(text, f) >= 0 && fclose(f) == 0);
}
void edit_file(const char *path, const char *old, const char *new)
{
	char *text = read_text(path), *at = strstr(text, old), *out = calloc(1, 131072);

	CHECK(at && out);
	*at = 0;
	snprintf(out, 131072, "%s%s%s", text, new, at + strlen(old));
	write_text(path, out);
	free(text);
	free(out);
}
/* ---- helpers of many tests ---- */

struct sheaf_file *open_file(struct sheaf *fs, const char *path, int flags)
{
	struct sheaf_file *f = NULL;
	int r = sheaf_open(fs, path, flags, 0644, NULL, &f);

	if (r)
		fprintf(stderr, "open %s: %s\n", path, sheaf_strerror(r));
	CHECK_EQ(r, 0);
	return f;
}

void fill_pattern(void *p, size_t n, uint64_t seed, uint64_t off)
{
	uint8_t *b = p;

	for (size_t i = 0; i < n; i++) {
		uint64_t x = (off + i) >> 3, s = seed * 1000003 + x;

		b[i] = (uint8_t)(test_random(&s) >> (8 * ((off + i) & 7)));
	}
}

bool is_pattern(const void *p, size_t n, uint64_t seed, uint64_t off)
{
	uint8_t *want = malloc(n ? n : 1);
	bool same;

	CHECK(want);
	fill_pattern(want, n, seed, off);
	same = memcmp(want, p, n) == 0;
	free(want);
	return same;
}

void make_file(struct sheaf *fs, const char *path, size_t n, uint64_t seed)
{
	struct sheaf_file *f = open_file(fs, path, O_CREAT | O_RDWR | O_TRUNC);
	uint8_t *b = malloc(n ? n : 1);

	CHECK(b);
	fill_pattern(b, n, seed, 0);
	CHECK_EQ(sheaf_pwrite(f, b, n, 0), (ssize_t)n);
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
}

void check_file(struct sheaf *fs, const char *path, size_t n, uint64_t seed)
{
	struct sheaf_file *f = open_file(fs, path, O_RDONLY);
	uint8_t *b = malloc(n + 1);

	CHECK(b);
	CHECK_EQ(sheaf_pread(f, b, n + 1, 0), (ssize_t)n);
	CHECK(is_pattern(b, n, seed, 0));
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
}

const char *fresh_dir(struct sheaf *fs)
{
	static char dir[32];
	static int number;

	snprintf(dir, sizeof(dir), "/d%d", ++number);
	CHECK_EQ(sheaf_mkdir(fs, dir, 0755), 0);
	return dir;
}

const char *path_in(const char *dir, const char *name)
{
	static char paths[64][400];
	static int at;
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	at = (at + 1) % 64;
	return memcpy(paths[at], path, sizeof(path));
}

struct stat stat_of(struct sheaf *fs, const char *path)
{
	struct stat st;

	CHECK_EQ(sheaf_lstat(fs, path, &st), 0);
	return st;
}

int open_error(struct sheaf *fs, const char *path, int flags)
{
	struct sheaf_file *f;
	int r = sheaf_open(fs, path, flags, 0644, NULL, &f);

	if (r == 0)
		CHECK_EQ(sheaf_close(f), 0);
	return r;
}
