/* The computation: five coupled unknowns that react and diffuse on a cubic grid, zero around it.
 *
 * A step is implicit along x and y: the systems of each line are block-tridiagonal, with blocks of
 * 5 x 5. Along z it is explicit, so a process needs one plane of each neighbour. All sums have one
 * order, so the result does not depend on the number of processes. Buffers: of the grid. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "blocktri.h"

#define DT 0.1
#define DIFFUSION 0.4
#define COUPLING (DT * DIFFUSION) /* of neighbours on a line */
#define BLOCK (UNKNOWNS * UNKNOWNS)

const char *const array_names[ARRAYS] = { "now", "before", "sum", "squares" };

/* How the unknowns of a point act on each other. */
static const double reaction[UNKNOWNS][UNKNOWNS] = { { 0.30, -0.50, 0.10, 0.00, 0.05 },
						     { 0.50, 0.20, -0.40, 0.10, 0.00 },
						     { 0.00, 0.40, 0.25, -0.30, 0.10 },
						     { 0.10, 0.00, 0.30, 0.15, -0.60 },
						     { -0.20, 0.10, 0.00, 0.60, 0.35 } };

/* ---- memory ---- */

static void *memory(size_t n)
{
	void *p = NULL;

	if (posix_memalign(&p, 4096, n + 1))
		fail("memory", "out of memory");
	memset(p, 0, n);
	return p;
}

void grid_make(struct grid *g, int n)
{
	size_t plane = (size_t)n * (size_t)n * UNKNOWNS * sizeof(double);

	*g = (struct grid){ .n = n, .first = (int)((long)n * rank / ranks) };
	g->planes = (int)((long)n * (rank + 1) / ranks) - g->first;
	g->bytes = (size_t)g->planes * plane;
	for (int i = 0; i < ARRAYS; i++)
		g->array[i] = memory(g->bytes);
	g->change = memory(g->bytes);
	g->below = memory(plane);
	g->above = memory(plane);
	g->line = memory((size_t)n * BLOCK * sizeof(double));
}

void grid_free(struct grid *g)
{
	for (int i = 0; i < ARRAYS; i++)
		free(g->array[i]);
	free(g->change);
	free(g->below);
	free(g->above);
	free(g->line);
}

void grid_begin(struct grid *g)
{
	size_t at = 0;

	g->step = 0;
	for (int z = 0; z < g->planes; z++)
		for (int y = 0; y < g->n; y++)
			for (int x = 0; x < g->n; x++)
				for (int k = 0; k < UNKNOWNS; k++, at++) {
					double w = sin(0.11 * (g->first + z) + 0.07 * y + 0.05 * x +
						       1.3 * k);

					g->array[0][at] = g->array[1][at] = 0.2 * w;
					g->array[2][at] = g->array[3][at] = 0;
				}
}

/* ---- one line: (I - DT J - COUPLING d2) change = right side ---- */

/* Replaces a by its inverse; it is dominated by its diagonal, so no rows are exchanged. */
static void invert(double a[UNKNOWNS][UNKNOWNS])
{
	for (int p = 0; p < UNKNOWNS; p++) {
		double by = 1 / a[p][p];

		a[p][p] = 1;
		for (int j = 0; j < UNKNOWNS; j++)
			a[p][j] *= by;
		for (int i = 0; i < UNKNOWNS; i++) {
			double f = a[i][p];

			if (i == p)
				continue;
			a[i][p] = 0;
			for (int j = 0; j < UNKNOWNS; j++)
				a[i][j] -= f * a[p][j];
		}
	}
}

/* The block of a point, half of whose reaction is on the lines of each direction. */
static void point_block(double a[UNKNOWNS][UNKNOWNS], const double *u)
{
	for (int i = 0; i < UNKNOWNS; i++)
		for (int j = 0; j < UNKNOWNS; j++)
			a[i][j] = -0.5 * DT * reaction[i][j];
	for (int i = 0; i < UNKNOWNS; i++)
		a[i][i] += 1 + 2 * COUPLING + 1.5 * DT * u[i] * u[i];
}

static void apply(double a[UNKNOWNS][UNKNOWNS], double *v)
{
	double out[UNKNOWNS];

	for (int i = 0; i < UNKNOWNS; i++) {
		out[i] = 0;
		for (int j = 0; j < UNKNOWNS; j++)
			out[i] += a[i][j] * v[j];
	}
	memcpy(v, out, sizeof(out));
}

/* Solves a line of `len` points, `apart` numbers from each other, in place. */
static void solve_line(const struct grid *g, const double *u, double *d, int len, size_t apart)
{
	double(*inverse)[UNKNOWNS][UNKNOWNS] = (void *)g->line;

	for (int i = 0; i < len; i++) {
		double *v = d + (size_t)i * apart;

		point_block(inverse[i], u + (size_t)i * apart);
		for (int k = 0; i && k < UNKNOWNS; k++) {
			for (int j = 0; j < UNKNOWNS; j++)
				inverse[i][k][j] -= COUPLING * COUPLING * inverse[i - 1][k][j];
			v[k] += COUPLING * v[k - (long)apart];
		}
		invert(inverse[i]);
		apply(inverse[i], v);
	}
	for (int i = len - 2; i >= 0; i--) {
		double next[UNKNOWNS], *v = d + (size_t)i * apart;

		memcpy(next, v + apart, sizeof(next));
		apply(inverse[i], next);
		for (int k = 0; k < UNKNOWNS; k++)
			v[k] += COUPLING * next[k];
	}
}

/* ---- one step ---- */

/* The value of a neighbour: 0 outside of the grid. */
static double beside(const double *u, size_t at, long step, bool inside)
{
	return inside ? u[(long)at + step] : 0;
}

static void right_side(struct grid *g, int z, int y, int x, size_t at)
{
	const double *u = g->array[0] + at, *before = g->array[1] + at;
	size_t in_plane = ((size_t)y * (size_t)g->n + (size_t)x) * UNKNOWNS;
	long row = (long)g->n * UNKNOWNS, plane = row * g->n;

	for (int k = 0; k < UNKNOWNS; k++) {
		double low = z ? u[k - plane] : g->below[in_plane + (size_t)k];
		double high = z + 1 < g->planes ? u[k + plane] : g->above[in_plane + (size_t)k];
		double around = beside(u, (size_t)k, -UNKNOWNS, x > 0) +
				beside(u, (size_t)k, UNKNOWNS, x + 1 < g->n) +
				beside(u, (size_t)k, -row, y > 0) +
				beside(u, (size_t)k, row, y + 1 < g->n) + low + high;
		double r = -u[k] * u[k] * u[k];

		for (int j = 0; j < UNKNOWNS; j++)
			r += reaction[k][j] * u[j];
		g->change[at + (size_t)k] =
			DT * (r + DIFFUSION * (around - 6 * u[k])) + 0.1 * (u[k] - before[k]);
	}
}

static void add_change(struct grid *g, size_t at, size_t n)
{
	double *now = g->array[0], *before = g->array[1], *sum = g->array[2],
	       *squares = g->array[3];

	for (size_t i = at; i < at + n; i++) {
		before[i] = now[i];
		now[i] += g->change[i];
		sum[i] += now[i];
		squares[i] += now[i] * now[i];
	}
}

static void advance_plane(struct grid *g, int z, int y0, int y1)
{
	size_t row = (size_t)g->n * UNKNOWNS, plane = (size_t)z * row * (size_t)g->n;
	size_t start = plane + (size_t)y0 * row;

	for (int y = y0; y < y1; y++)
		solve_line(g, g->array[0] + plane + (size_t)y * row,
			   g->change + plane + (size_t)y * row, g->n, UNKNOWNS);
	for (int x = 0; x < g->n; x++)
		solve_line(g, g->array[0] + start + (size_t)x * UNKNOWNS,
			   g->change + start + (size_t)x * UNKNOWNS, y1 - y0, row);
}

void grid_advance(struct grid *g, int y0, int y1)
{
	size_t row = (size_t)g->n * UNKNOWNS, plane = row * (size_t)g->n;

	ranks_exchange(g->array[0], g->array[0] + (size_t)(g->planes - 1) * plane, g->below,
		       g->above, plane);
	for (int z = 0; z < g->planes; z++)
		for (int y = y0; y < y1; y++)
			for (int x = 0; x < g->n; x++)
				right_side(g, z, y, x,
					   (size_t)z * plane + (size_t)y * row +
						   (size_t)x * UNKNOWNS);
	for (int z = 0; z < g->planes; z++) {
		advance_plane(g, z, y0, y1);
		add_change(g, (size_t)z * plane + (size_t)y0 * row, (size_t)(y1 - y0) * row);
	}
	g->step++;
}

uint64_t grid_hash(const struct grid *g)
{
	size_t n = g->bytes / sizeof(double);
	uint64_t mine = 0, global = (uint64_t)g->first * (n / (size_t)g->planes), bits;

	for (int a = 0; a < ARRAYS; a++)
		for (size_t i = 0; i < n; i++) {
			memcpy(&bits, &g->array[a][i], sizeof(bits));
			bits ^= (global + i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)a;
			bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9u;
			mine += bits ^ bits >> 32;
		}
	return ranks_sum(mine) + g->step;
}
