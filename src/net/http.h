/* An endpoint for GET /metrics. */
#ifndef SHEAF_HTTP_H
#define SHEAF_HTTP_H

#include "core/core.h"

struct http;
typedef int http_text(void *arg, char **text,
		      size_t *len); /* makes the page; freed by the caller */

/* Serves the page at HOST:PORT (IPv4), driven by the loop. */
int http_start(struct loop *l, const char *address, http_text *text, void *arg, struct http **out);
void http_stop(struct http *h); /* or NULL */

#endif
