/* A table of records of one size: a column of it, two columns at once, some of its rows, and a
 * column that is written back while the others stay as they are.
 *
 *     table [CLUSTER-FILE | local:DIR] */
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sheaf.h>

#define STARS 10000

struct star {
	int64_t id;
	char name[16];
	float ra, dec;
	double mass;
};

struct place { /* what an analysis wants of it */
	float ra, dec;
	double mass;
	double brightness; /* not in the file */
};

static struct star stars[STARS];
static struct place places[STARS];
static double masses[STARS];

static void must(const char *what, ssize_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, sheaf_strerror((int)r));
	exit(1);
}

static void check(int ok, const char *what, long i)
{
	if (ok)
		return;
	fprintf(stderr, "%s of star %ld is wrong\n", what, i);
	exit(1);
}

static struct star star(int i)
{
	struct star s = { .id = i, .ra = i % 360, .dec = i % 90, .mass = i / 4.0 };

	snprintf(s.name, sizeof(s.name), "HD %d", i);
	return s;
}

/* One column, doubled in memory and written back. */
static void heavier(struct sheaf_file *f)
{
	struct sheaf_type *mass, *column;

	must("type", sheaf_type_bytes(sizeof(double), &mass));
	must("type", sheaf_type_vector(STARS, 1, sizeof(struct star), mass, &column));
	must("read", sheaf_read_typed(f, masses, mass, STARS, offsetof(struct star, mass), column));
	for (int i = 0; i < STARS; i++)
		masses[i] *= 2;
	must("write",
	     sheaf_write_typed(f, masses, mass, STARS, offsetof(struct star, mass), column));
	sheaf_type_free(mass);
	sheaf_type_free(column);
}

/* Three fields of every record into three fields of other records. */
static void read_places(struct sheaf_file *f)
{
	uint64_t one[] = { 1, 1 };
	int64_t there[] = { offsetof(struct star, ra), offsetof(struct star, mass) };
	int64_t here[] = { offsetof(struct place, ra), offsetof(struct place, mass) };
	struct sheaf_type *sky, *mass, *fields, *in_file, *in_memory;
	const struct sheaf_type *of[2];

	must("type", sheaf_type_bytes(2 * sizeof(float), &sky)); /* ra and dec */
	must("type", sheaf_type_bytes(sizeof(double), &mass));
	of[0] = sky;
	of[1] = mass;
	must("type", sheaf_type_struct(2, one, there, of, &fields));
	must("type", sheaf_type_vector(STARS, 1, sizeof(struct star), fields, &in_file));
	sheaf_type_free(fields);
	must("type", sheaf_type_struct(2, one, here, of, &fields));
	must("type", sheaf_type_vector(STARS, 1, sizeof(struct place), fields, &in_memory));
	must("read", sheaf_read_typed(f, places, in_memory, 1, 0, in_file));
	sheaf_type_free(sky);
	sheaf_type_free(mass);
	sheaf_type_free(fields);
	sheaf_type_free(in_file);
	sheaf_type_free(in_memory);
}

/* Rows 7, 1234 to 1236 and 9999. */
static void read_rows(struct sheaf_file *f, struct star *out)
{
	uint64_t blocks[] = { 1, 3, 1 };
	int64_t at[] = { 7 * sizeof(struct star), 1234 * sizeof(struct star),
			 9999 * sizeof(struct star) };
	struct sheaf_type *row, *some;

	must("type", sheaf_type_bytes(sizeof(struct star), &row));
	must("type", sheaf_type_indexed(3, blocks, at, row, &some));
	must("read", sheaf_read_typed(f, out, row, 5, 0, some));
	sheaf_type_free(row);
	sheaf_type_free(some);
}

int main(int argc, char **argv)
{
	static const int rows[] = { 7, 1234, 1235, 1236, 9999 };
	struct star some[5];
	struct sheaf *fs;
	struct sheaf_file *f;

	if (sheaf_connect(argc > 1 ? argv[1] : NULL, &fs) < 0) {
		fprintf(stderr, "cannot connect: %s\n", sheaf_why());
		return 1;
	}
	for (int i = 0; i < STARS; i++)
		stars[i] = star(i);
	must("open", sheaf_open(fs, "/stars", O_RDWR | O_CREAT | O_TRUNC, 0644, NULL, &f));
	must("write", sheaf_pwrite(f, stars, sizeof(stars), 0));
	heavier(f);
	read_places(f);
	for (int i = 0; i < STARS; i++) {
		check(places[i].ra == stars[i].ra && places[i].dec == stars[i].dec, "place", i);
		check(places[i].mass == 2 * stars[i].mass, "mass", i);
		check(places[i].brightness == 0, "brightness", i);
	}
	read_rows(f, some);
	for (int i = 0; i < 5; i++) {
		check(some[i].id == rows[i], "id", rows[i]);
		check(strcmp(some[i].name, stars[rows[i]].name) == 0, "name", rows[i]);
	}
	must("close", sheaf_close(f));
	sheaf_disconnect(fs);
	printf("%d records: masses doubled in place, three fields taken out, %s the last of 5 rows\n",
	       STARS, some[4].name);
	return 0;
}
