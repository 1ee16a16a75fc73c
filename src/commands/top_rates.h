/* Rates of `sheaf top`, from two answers of each server. */
#ifndef SHEAF_TOP_RATES_H
#define SHEAF_TOP_RATES_H

#include "base/base.h"
#include "sheaf_admin.h"

/* What one server has told. All zero before its first answer. */
struct top_sample {
	struct sheaf_tally now, before, next; /* now and before are sorted by name */
	bool has_rates; /* now and before are of one run of the server */
};

struct top_row {
	char name[65];
	uint32_t sessions;
	uint64_t requests, bytes_read, bytes_written; /* since the servers started */
	double requests_per_s, read_per_s, written_per_s;
};

/* Where the next answer is to be written; top_take() then makes it the latest one. */
struct sheaf_tally *top_next(struct top_sample *s);
void top_take(struct top_sample *s);
/* Fills at most SHEAF_TALLY_ROWS rows; returns how many. */
size_t top_rows(const struct top_sample *s, struct top_row *rows);
/* Adds up the rows of each name, of all servers; returns how many are left, sorted by name. */
size_t top_join(struct top_row *rows, size_t n);

#endif
