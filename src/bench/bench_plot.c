/* One plot of `sheaf bench --report` as SVG: groups of bars, or one line per series. The value axis
 * is linear from 0 in round steps or, if the plot asks for it, logarithmic. Whiskers span the
 * lowest to the highest round, values are printed at their points, and a baseline is a dashed line.
 * Pure functions, except for the output. */
#include <math.h>

#include "bench/bench_report.h"

#define WIDTH 720.0
#define HEIGHT 396.0
#define LEFT 64.0
#define RIGHT 16.0
#define TOP 94.0
#define LINE 18.0 /* line height of the legend */
#define VALUE_WIDTH 26.0 /* of a printed value */
#define APART 12.0 /* minimum distance of two values at the end of lines */
#define BOTTOM 52.0

/* Distinguishable for colour-blind readers and in greyscale. */
static const char *const colours[BENCH_PLOT_MAX] = { "#1b6ca8", "#e08214", "#2a9d72", "#b2427a",
						     "#6a51a3", "#8c6d31", "#5f6b76", "#c23b22" };

struct frame {
	FILE *f;
	const struct bench_plot *p;
	const char *unit;
	double low, top, step; /* y axis; low 0: linear, otherwise steps of ten times */
};

static double y_of(const struct frame *fr, double v)
{
	double part = fr->low > 0 ? log(MAX(v, fr->low) / fr->low) / log(fr->top / fr->low) :
				    v / fr->top;

	return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part;
}

/* Three digits, thousands as k: "5.43", "41.2", "18.3k"; small values as "0.0019". */
static void short_number(char *out, size_t n, double v)
{
	const char *k = "";

	if (v >= 1e6) {
		v /= 1e6;
		k = "M";
	} else if (v >= 2e3) {
		v /= 1e3;
		k = "k";
	}
	snprintf(out, n, "%.*f%s", v < 0.1 ? 4 : v < 10 ? 2 : v < 100 ? 1 : 0, v, k);
}

/* All numbers of an axis have the same form, which depends on the top value. */
static void axis_number(char *out, size_t n, double v, double top)
{
	if (top >= 2e6)
		snprintf(out, n, "%g%s", v / 1e6, v > 0 ? "M" : "");
	else if (top >= 2e3)
		snprintf(out, n, "%g%s", v / 1e3, v > 0 ? "k" : "");
	else
		snprintf(out, n, "%g", v);
}

const char *report_unit(const char *unit)
{
	if (strcmp(unit, "us") == 0)
		return "µs";
	if (strcmp(unit, "1/s") == 0)
		return "per second";
	if (strcmp(unit, "ratio") == 0)
		return "times";
	return unit;
}

/* Five to ten steps of 1, 2 or 5 times a power of ten; or powers of ten around all values. */
static void choose_scale(struct frame *fr)
{
	const struct bench_plot *p = fr->p;
	double most = 0, least = HUGE_VAL, power;

	for (int g = 0; g < p->n_groups; g++)
		for (int s = 0; s < p->n_series; s++)
			if (p->cell[g][s]) {
				most = MAX(most, p->cell[g][s]->max);
				least = MIN(least, p->cell[g][s]->median);
			}
	if (p->log && least > 0 && most > 0) {
		fr->low = pow(10, floor(log10(least)));
		fr->top = pow(10, floor(log10(most)) + 1);
		return;
	}
	if (p->ref && p->ref->median < 2.5 * most)
		most = MAX(most, p->ref->median);
	if (most <= 0)
		most = 1;
	most *= 1.08; /* space for the label above the highest value */
	power = pow(10, floor(log10(most / 5)));
	fr->step = power;
	if (most / fr->step > 10)
		fr->step = 2 * power;
	if (most / fr->step > 10)
		fr->step = 5 * power;
	fr->top = ceil(most / fr->step) * fr->step;
}

static void draw_axes(struct frame *fr)
{
	const struct bench_plot *p = fr->p;
	char text[96];

	for (double v = fr->low; v <= fr->top * 1.0001; v = fr->low > 0 ? v * 10 : v + fr->step) {
		double y = y_of(fr, v);

		fprintf(fr->f,
			"<line x1=\"%.0f\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\" class=\"%s\"/>\n",
			LEFT, y, WIDTH - RIGHT, y, v > fr->low ? "grid" : "axis");
		axis_number(text, sizeof(text), v, fr->top);
		cli_put_svg(fr->f, LEFT - 8, y + 4, "text-anchor=\"end\"", text);
	}
	cli_put_svg(fr->f, LEFT - 46, TOP - 14, "class=\"unit\"", report_unit(fr->unit));
	for (int g = 0; g < p->n_groups; g++) {
		double w = (WIDTH - LEFT - RIGHT) / p->n_groups;

		cli_put_svg(fr->f, LEFT + w * (g + 0.5), HEIGHT - BOTTOM + 20,
			    "text-anchor=\"middle\"", p->groups[g]);
	}
	if (p->x_label)
		cli_put_svg(fr->f, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10,
			    "text-anchor=\"middle\" class=\"unit\"", p->x_label);
}

/* Position of the next legend entry; moves to the next line if the entry does not fit. */
static void legend_place(double *x, double *y, const char *text)
{
	if (*x + 30 + 6.8 * (double)strlen(text) > WIDTH - RIGHT && *x > LEFT) {
		*x = LEFT;
		*y += LINE;
	}
}

static void draw_ref(struct frame *fr, double x, double y)
{
	const struct bench_row *ref = fr->p->ref;
	char text[160], number[32], many[32] = "";

	if (!ref)
		return;
	short_number(number, sizeof(number), ref->median);
	if (ref->clients > 1)
		snprintf(many, sizeof(many), ", %u at once", ref->clients);
	snprintf(text, sizeof(text), "%s%s: %s%s", ref->what, many, number,
		 ref->median > fr->top ? " (beyond the plot)" : "");
	legend_place(&x, &y, text);
	fprintf(fr->f, "<line x1=\"%.0f\" y1=\"%.0f\" x2=\"%.0f\" y2=\"%.0f\" class=\"ref\"/>\n", x,
		y - 4, x + 24, y - 4);
	cli_put_svg(fr->f, x + 30, y, "", text);
	if (ref->median > fr->top)
		return;
	y = y_of(fr, ref->median);
	fprintf(fr->f, "<line x1=\"%.0f\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\" class=\"ref\"/>\n",
		LEFT, y, WIDTH - RIGHT, y);
}

static void draw_legend(struct frame *fr)
{
	const struct bench_plot *p = fr->p;
	double x = LEFT, y = 48;

	cli_put_svg(fr->f, 12, 24, "class=\"title\"", p->title);
	for (int s = 0; p->n_series > 1 && s < p->n_series; s++) {
		legend_place(&x, &y, p->series[s]);
		fprintf(fr->f,
			"<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x,
			y - 10, colours[s]);
		cli_put_svg(fr->f, x + 17, y, "", p->series[s]);
		x += 36 + 6.6 * (double)strlen(p->series[s]);
	}
	draw_ref(fr, x, y);
}

/* From the lowest to the highest round. */
static void draw_whisker(struct frame *fr, double x, const struct bench_row *r)
{
	double lo = y_of(fr, r->min), hi = y_of(fr, r->max);

	if (r->runs < 2)
		return;
	fprintf(fr->f, "<path d=\"M%.1f %.1fV%.1fM%.1f %.1fh6M%.1f %.1fh6\" class=\"whisker\"/>\n",
		x, lo, hi, x - 3, lo, x - 3, hi);
}

/* A value above a bar whose middle is at x. Values that are wider than the bar stand upright. */
static void put_bar_value(struct frame *fr, double x, double w, double v)
{
	double y = y_of(fr, v) - 5;
	char text[32], turned[96];

	short_number(text, sizeof(text), v);
	snprintf(turned, sizeof(turned), "transform=\"rotate(-90 %.1f %.1f)\" class=\"value\"",
		 x + 4, y);
	if (w < VALUE_WIDTH)
		cli_put_svg(fr->f, x + 4, y, turned, text);
	else
		cli_put_svg(fr->f, x, y, "text-anchor=\"middle\" class=\"value\"", text);
}

static void draw_bars(struct frame *fr)
{
	const struct bench_plot *p = fr->p;
	double group = (WIDTH - LEFT - RIGHT) / p->n_groups;
	double w = MIN(group * 0.8 / p->n_series, 72.0);

	for (int g = 0; g < p->n_groups; g++)
		for (int s = 0; s < p->n_series; s++) {
			const struct bench_row *r = p->cell[g][s];
			double x = LEFT + group * (g + 0.5) + w * (s - p->n_series / 2.0);
			int colour = p->n_series > 1 ? s : 0;

			if (!r)
				continue;
			fprintf(fr->f,
				"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
				"fill=\"%s\"/>\n",
				x + 1, y_of(fr, r->median), w - 2,
				y_of(fr, 0) - y_of(fr, r->median), colours[colour]);
			draw_whisker(fr, x + w * 0.86, r);
			put_bar_value(fr, x + w * (r->runs > 1 ? 0.42 : 0.5), w, r->median);
		}
}

static double x_of(const struct bench_plot *p, int g)
{
	return LEFT + (WIDTH - LEFT - RIGHT) / p->n_groups * (g + 0.5);
}

/* Prints the values at one end of the lines from the top down, moved apart where they overlap. */
static void put_end_values(struct frame *fr, int g, double dx, const char *attributes)
{
	const struct bench_plot *p = fr->p;
	int order[BENCH_PLOT_MAX], n = 0, k;
	double y, last = 0;
	char text[32];

	for (int s = 0; s < p->n_series; s++) {
		if (!p->cell[g][s])
			continue;
		for (k = n++; k > 0 && p->cell[g][order[k - 1]]->median < p->cell[g][s]->median;
		     k--)
			order[k] = order[k - 1];
		order[k] = s;
	}
	for (int i = 0; i < n; i++) {
		y = MAX(y_of(fr, p->cell[g][order[i]]->median) + 4, last + APART);
		short_number(text, sizeof(text), p->cell[g][order[i]]->median);
		cli_put_svg(fr->f, x_of(p, g) + dx, y, attributes, text);
		last = y;
	}
}

/* Values are printed at the first and last point of each line; the table has the others. */
static void draw_lines(struct frame *fr)
{
	const struct bench_plot *p = fr->p;

	for (int s = 0; s < p->n_series; s++) {
		fputs("<polyline points=\"", fr->f);
		for (int g = 0; g < p->n_groups; g++)
			if (p->cell[g][s])
				fprintf(fr->f, "%.1f,%.1f ", x_of(p, g),
					y_of(fr, p->cell[g][s]->median));
		fprintf(fr->f, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\"%s/>\n",
			colours[s], s % 2 ? " stroke-dasharray=\"7 3\"" : "");
		for (int g = 0; g < p->n_groups; g++)
			if (p->cell[g][s])
				fprintf(fr->f,
					"<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
					x_of(p, g), y_of(fr, p->cell[g][s]->median), colours[s]);
	}
	put_end_values(fr, 0, -8, "text-anchor=\"end\" class=\"value\"");
	put_end_values(fr, p->n_groups - 1, 8, "class=\"value\"");
}

void report_svg(FILE *f, const struct bench_plot *p)
{
	struct frame fr = { .f = f, .p = p, .unit = "" };

	for (int g = 0; g < p->n_groups && !fr.unit[0]; g++)
		for (int s = 0; s < p->n_series && !fr.unit[0]; s++)
			if (p->cell[g][s])
				fr.unit = p->cell[g][s]->unit;
	choose_scale(&fr);
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
		"font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"#222\">\n"
		"<title>",
		WIDTH, HEIGHT);
	cli_put_xml(f, p->title);
	fputs("</title>\n<style>.title{font-size:16px;font-weight:600}.unit{fill:#555}"
	      ".value{font-size:11px;paint-order:stroke;stroke:#fff;stroke-width:3px}"
	      ".grid{stroke:#ddd}.axis{stroke:#333}.ref{stroke:#333;stroke-width:1.5;"
	      "stroke-dasharray:5 4}.whisker{stroke:#222;stroke-width:1.2;fill:none}</style>\n",
	      f);
	fprintf(f, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", WIDTH, HEIGHT);
	draw_axes(&fr);
	draw_legend(&fr);
	if (p->line)
		draw_lines(&fr);
	else
		draw_bars(&fr);
	fputs("</svg>\n", f);
}
