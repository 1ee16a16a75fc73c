/* A server's answer as JSON, for `sheaf status --json` and the status page. */
#include <json-c/json.h>

#include "cli/cli.h"

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
	cli_json_known(o, "pid", up, s->pid);
	json_object_object_add(o, "roles", roles);
	json_object_object_add(
		o, "uptime_s",
		up ? json_object_new_double((double)s->uptime_ns / (double)NSEC_PER_SEC) : NULL);
	cli_json_known(o, "rss_bytes", up, s->rss_bytes);
	cli_json_known(o, "anon_bytes", up, s->anon_bytes);
	cli_json_known(o, "requests", up, s->requests);
	cli_json_known(o, "in_service", up, s->in_service);
	cli_json_known(o, "clients", up, s->links);
	cli_json_known(o, "sessions", up, s->sessions);
	cli_json_known(o, "load", up, s->load);
	cli_json_known(o, "outstanding_bytes", up, s->pool_bytes - s->pool_free);
	cli_json_known(o, "space_total", up, s->space_total);
	cli_json_known(o, "space_avail", up, s->space_avail);
	cli_json_known(o, "pool_bytes", up, s->pool_bytes);
	cli_json_known(o, "pool_free", up, s->pool_free);
	cli_json_known(o, "pool_waits", up, s->pool_waits);
	cli_json_known(o, "bad_links", up, s->bad_links);
	cli_json_known(o, "refused", up, s->refused);
	cli_json_known(o, "slow_inline", up, s->slow_inline);
	cli_json_known(o, "disk_inline", up, s->disk_inline);
	cli_json_known(o, "disk_handed", up, s->disk_handed);
	cli_json_known(o, "bytes_read", up, s->bytes_read);
	cli_json_known(o, "bytes_written", up, s->bytes_written);
	cli_json_known(o, "accesses_requested", up, s->accesses_requested);
	cli_json_known(o, "accesses_performed", up, s->accesses_performed);
	cli_json_known(o, "accesses_merged", up, s->accesses_merged);
	cli_json_known(o, "vain_bytes", up, s->vain_bytes);
	cli_json_known(o, "read_modify_writes", up, s->read_modify_writes);
	return o;
}
