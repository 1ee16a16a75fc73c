/* Events of a detector, each as long as it happens to be, one behind the other in the file; an
 * index says where they are. They are written, and some of them picked and read, by lists: no
 * pattern describes these places.
 *
 *     events [CLUSTER-FILE | local:DIR] */
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sheaf.h>

enum { EVENTS = 20000, HITS = 200 };

struct event {
	uint32_t number, length; /* bytes of it, header included, that are in use */
	uint8_t hits[HITS];
};

static struct event events[EVENTS], picked[EVENTS];
static struct sheaf_extent place[EVENTS], wanted[EVENTS]; /* place: the index */
static struct iovec mem[EVENTS];

static void must(const char *what, ssize_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, sheaf_strerror((int)r));
	exit(1);
}

static void happen(void)
{
	for (uint32_t i = 0; i < EVENTS; i++) {
		uint32_t hits = i * 7919U % HITS;

		events[i].number = i;
		events[i].length = (uint32_t)offsetof(struct event, hits) + hits;
		for (uint32_t k = 0; k < hits; k++)
			events[i].hits[k] = (uint8_t)(i + k);
	}
}

/* The used parts of all events, gathered from where they are, become one piece of the file. */
static void write_all(struct sheaf_file *f)
{
	struct sheaf_extent whole = { 0, 0 };

	for (int i = 0; i < EVENTS; i++) {
		mem[i] = (struct iovec){ &events[i], events[i].length };
		place[i] = (struct sheaf_extent){ whole.length, events[i].length };
		whole.length += events[i].length;
	}
	must("write", sheaf_write_list(f, mem, EVENTS, &whole, 1));
}

/* Those with many hits, from wherever they are, each into a struct of its own; how many they
 * are. */
static size_t read_some(struct sheaf_file *f)
{
	size_t n = 0;

	for (int i = 0; i < EVENTS; i++) {
		if (place[i].length < 180)
			continue;
		wanted[n] = place[i];
		mem[n] = (struct iovec){ &picked[n], place[i].length };
		n++;
	}
	must("read", sheaf_read_list(f, mem, n, wanted, n));
	return n;
}

int main(int argc, char **argv)
{
	struct sheaf *fs;
	struct sheaf_file *f;
	size_t n;

	if (sheaf_connect(argc > 1 ? argv[1] : NULL, &fs) < 0) {
		fprintf(stderr, "cannot connect: %s\n", sheaf_why());
		return 1;
	}
	happen();
	must("open", sheaf_open(fs, "/events", O_RDWR | O_CREAT | O_TRUNC, 0644, NULL, &f));
	write_all(f);
	n = read_some(f);
	for (size_t i = 0; i < n; i++)
		if (picked[i].number >= EVENTS ||
		    memcmp(&picked[i], &events[picked[i].number], sizeof(picked[i])) != 0) {
			fprintf(stderr, "event %u is wrong\n", picked[i].number);
			return 1;
		}
	must("close", sheaf_close(f));
	sheaf_disconnect(fs);
	printf("%zu of %d events picked, %u ... %u, as they happened\n", n, EVENTS,
	       picked[0].number, picked[n - 1].number);
	return 0;
}
