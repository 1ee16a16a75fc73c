/* What is left in the database of a server. Not in sim_peek.c, since the private headers of meta
 * and client cannot be included together. */
#include <stdio.h>

#include "meta/meta_state.h"
#include "sim_priv.h"

/* Rows that may be left in a table: the root directory, the server's own state, and a bounded
 * number of answers to calls of gateways. */
static size_t may_be_left(const struct meta *m, enum table t)
{
	if (t == T_SYS)
		return SIZE_MAX;
	if (t == T_ANSWER || t == T_ANSWERED)
		return ANSWERS_MAX;
	return t == T_INODE && m->partition == 0;
}

int sim_tables_check(const struct meta *m, char *why, size_t n)
{
	MDB_txn *txn;
	int r = mdb_txn_begin(m->db.env, NULL, MDB_RDONLY, &txn);

	for (int t = 0; t < N_TABLES && !r; t++) {
		MDB_stat st;

		r = mdb_stat(txn, m->db.t[t], &st);
		if (!r && st.ms_entries > may_be_left(m, (enum table)t)) {
			snprintf(why, n, "%zu rows are left in the table %s", st.ms_entries,
				 table_names[t]);
			mdb_txn_abort(txn);
			return 1;
		}
	}
	if (r)
		snprintf(why, n, "the tables cannot be read: %s", mdb_strerror(r));
	else
		mdb_txn_abort(txn);
	return r != 0;
}
