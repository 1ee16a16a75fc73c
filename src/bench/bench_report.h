/* Shared by the report page (bench_report.c) and its plots (bench_plot.c). */
#ifndef SHEAF_BENCH_REPORT_H
#define SHEAF_BENCH_REPORT_H

#include "bench/bench_impl.h"

void report_svg(FILE *f, const struct bench_plot *p);
const char *report_unit(const char *unit); /* the unit as the report prints it */

#endif
