/* Between the page and its plots. */
#ifndef SHEAF_BENCH_REPORT_H
#define SHEAF_BENCH_REPORT_H

#include "cli/bench.h"

void report_svg(FILE *f, const struct bench_plot *p);
void report_text(FILE *f, const char *s); /* with what HTML takes for itself escaped */
const char *report_unit(const char *unit); /* for people */

#endif
