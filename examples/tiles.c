/* A grid that is worked on tile by tile: each is read with a border of one cell, its ghost cells,
 * and what becomes of it is written without them. Two calls a tile, and no buffer beside the
 * working array.
 *
 *     tiles [CLUSTER-FILE | local:DIR] */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sheaf.h>

enum { ROWS = 240, COLS = 320, TILE = 80, ROOM = TILE + 2 };

static float grid[ROWS][COLS], tile[ROOM][ROOM], next[ROOM][ROOM];

static void must(const char *what, ssize_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, sheaf_strerror((int)r));
	exit(1);
}

/* rows x cols of an array of all_rows x all_cols, from (row, col) on */
static struct sheaf_type *part(uint64_t all_rows, uint64_t all_cols, uint64_t rows, uint64_t cols,
			       uint64_t row, uint64_t col)
{
	uint64_t sizes[] = { all_rows, all_cols }, subsizes[] = { rows, cols };
	uint64_t starts[] = { row, col };
	struct sheaf_type *cell, *t;

	must("type", sheaf_type_bytes(sizeof(float), &cell));
	must("type", sheaf_type_subarray(2, sizes, subsizes, starts, cell, &t));
	sheaf_type_free(cell);
	return t;
}

/* The tile at (row, col) and the cells around it, as far as the grid has any. */
static void read_tile(struct sheaf_file *f, int row, int col)
{
	int up = row > 0, left = col > 0;
	int rows = up + TILE + (row + TILE < ROWS), cols = left + TILE + (col + TILE < COLS);
	struct sheaf_type *there = part(ROWS, COLS, rows, cols, row - up, col - left);
	struct sheaf_type *here = part(ROOM, ROOM, rows, cols, 1 - up, 1 - left);

	memset(tile, 0, sizeof(tile));
	must("read", sheaf_read_typed(f, tile, here, 1, 0, there));
	sheaf_type_free(there);
	sheaf_type_free(here);
}

static void write_tile(struct sheaf_file *f, int row, int col)
{
	struct sheaf_type *there = part(ROWS, COLS, TILE, TILE, row, col);
	struct sheaf_type *inside = part(ROOM, ROOM, TILE, TILE, 1, 1);

	must("write", sheaf_write_typed(f, next, inside, 1, 0, there));
	sheaf_type_free(there);
	sheaf_type_free(inside);
}

/* What the grid has there before; nothing around it. */
static float before(int i, int j)
{
	return i < 0 || j < 0 || i == ROWS || j == COLS ? 0 : i * 1000.0F + j;
}

static void compute(void)
{
	for (int i = 1; i <= TILE; i++)
		for (int j = 1; j <= TILE; j++)
			next[i][j] = (tile[i - 1][j] + tile[i + 1][j] + tile[i][j - 1] +
				      tile[i][j + 1]) /
				     4;
}

static void check(void)
{
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLS; j++) {
			float want = (before(i - 1, j) + before(i + 1, j) + before(i, j - 1) +
				      before(i, j + 1)) /
				     4;

			if (grid[i][j] == want)
				continue;
			fprintf(stderr, "(%d, %d): %g is wrong\n", i, j, grid[i][j]);
			exit(1);
		}
}

int main(int argc, char **argv)
{
	struct sheaf *fs;
	struct sheaf_file *old, *new;

	if (sheaf_connect(argc > 1 ? argv[1] : NULL, &fs) < 0) {
		fprintf(stderr, "cannot connect: %s\n", sheaf_why());
		return 1;
	}
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLS; j++)
			grid[i][j] = before(i, j);
	must("open", sheaf_open(fs, "/grid.0", O_RDWR | O_CREAT | O_TRUNC, 0644, NULL, &old));
	must("open", sheaf_open(fs, "/grid.1", O_RDWR | O_CREAT | O_TRUNC, 0644, NULL, &new));
	must("write", sheaf_pwrite(old, grid, sizeof(grid), 0));
	for (int row = 0; row < ROWS; row += TILE)
		for (int col = 0; col < COLS; col += TILE) {
			read_tile(old, row, col);
			compute();
			write_tile(new, row, col);
		}
	must("read", sheaf_pread(new, grid, sizeof(grid), 0));
	check();
	must("close", sheaf_close(old));
	must("close", sheaf_close(new));
	sheaf_disconnect(fs);
	printf("%d tiles of %d x %d cells, smoothed over their borders, as one piece would be\n",
	       ROWS / TILE * (COLS / TILE), TILE, TILE);
	return 0;
}
