/* An endpoint for GET /metrics. */
#ifndef SHEAF_HTTP_H
#define SHEAF_HTTP_H

#include <stddef.h>

struct http;
struct loop;
typedef int http_text(void *arg, char **text,
		      size_t *len); /* makes the page; freed by the caller */

/* Opens the endpoint at HOST:PORT (IPv4). 0 or -errno. When http_fd() is readable http_run() is
 * due; it returns the milliseconds after which it is due again, or -1. */
int http_open(const char *address, http_text *text, void *arg, struct http **out);
int http_fd(const struct http *h);
int http_run(struct http *h);
/* The same, driven by the loop. */
int http_start(struct loop *l, const char *address, http_text *text, void *arg, struct http **out);
void http_stop(struct http *h); /* or NULL */

#endif
