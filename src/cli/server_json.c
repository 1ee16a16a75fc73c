/* A server's answer as JSON, for `sheaf status --json` and the status page. */
#include <json-c/json.h>

#include "cli/cli.h"

static void add_number(struct json_object *o, const char *key, bool known, uint64_t v)
{
	json_object_object_add(o, key, known ? json_object_new_uint64(v) : NULL);
}

struct json_object *cli_server_json(const struct sheaf_server *s)
{
	struct json_object *o = json_object_new_object(), *roles = json_object_new_array();
	bool up = s->up;

	if (s->roles & ROLE_META)
		json_object_array_add(roles, json_object_new_string("meta"));
	if (s->roles & ROLE_DATA)
		json_object_array_add(roles, json_object_new_string("data"));
	cli_json_text(o, "name", s->name);
	cli_json_text(o, "address", s->address);
	cli_json_bool(o, "up", up);
	json_object_object_add(o, "down",
			       s->down ? json_object_new_string(sheaf_down_name(s->down)) : NULL);
	json_object_object_add(o, "why", s->why[0] ? cli_json_name(s->why) : NULL);
	add_number(o, "pid", up, s->pid);
	json_object_object_add(o, "roles", roles);
	json_object_object_add(
		o, "uptime_s",
		up ? json_object_new_double((double)s->uptime_ns / (double)NSEC_PER_SEC) : NULL);
	add_number(o, "rss_bytes", up, s->rss_bytes);
	add_number(o, "anon_bytes", up, s->anon_bytes);
	add_number(o, "requests", up, s->requests);
	add_number(o, "in_service", up, s->in_service);
	add_number(o, "clients", up, s->links);
	add_number(o, "sessions", up, s->sessions);
	add_number(o, "load", up, s->load);
	add_number(o, "outstanding_bytes", up, s->pool_bytes - s->pool_free);
	add_number(o, "space_total", up, s->space_total);
	add_number(o, "space_avail", up, s->space_avail);
	add_number(o, "pool_bytes", up, s->pool_bytes);
	add_number(o, "pool_free", up, s->pool_free);
	add_number(o, "pool_waits", up, s->pool_waits);
	add_number(o, "bad_links", up, s->bad_links);
	add_number(o, "refused", up, s->refused);
	add_number(o, "slow_inline", up, s->slow_inline);
	add_number(o, "disk_inline", up, s->disk_inline);
	add_number(o, "disk_handed", up, s->disk_handed);
	add_number(o, "bytes_read", up, s->bytes_read);
	add_number(o, "bytes_written", up, s->bytes_written);
	add_number(o, "accesses_requested", up, s->accesses_requested);
	add_number(o, "accesses_performed", up, s->accesses_performed);
	add_number(o, "accesses_merged", up, s->accesses_merged);
	add_number(o, "vain_bytes", up, s->vain_bytes);
	add_number(o, "read_modify_writes", up, s->read_modify_writes);
	return o;
}
