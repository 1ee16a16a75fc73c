/* Recorded data that are not there any more: accesses find them; the log and the metrics tell.
 *
 * A capability under the file's present epoch means that nothing was cut since the recorded ends
 * left the metadata server. So an object that ends before its recorded end, or is missing, has
 * lost data: a read between the two ends is an error, never zeros. Threads: the loop's. */
#include "server/cap.h"

/* Limits the log to one line per object in DAMAGE_TELL_NS. */
static bool is_news(struct server *srv, const struct object_id *id)
{
	struct damage *d = &srv->damage;
	uint64_t now = srv->loop->now;

	for (uint32_t i = 0; i < DAMAGE_KNOWN; i++)
		if (d->known[i].id.ino == id->ino && d->known[i].id.index == id->index &&
		    now - d->known[i].logged_at < DAMAGE_TELL_NS)
			return false;
	d->known[d->next].id = *id;
	d->known[d->next].logged_at = now;
	d->next = (d->next + 1) % DAMAGE_KNOWN;
	return true;
}

int object_damaged(struct sreq *s, const struct wire_access *a, uint64_t end)
{
	struct server *srv = s->srv;
	struct object_id id = object_of(a);
	char name[OBJECT_PATH];

	/* the object may have been cut meanwhile */
	if (a->cap.epoch < disk_floor(srv->disk, id.ino))
		return -EKEYEXPIRED;
	srv->damage.accesses++;
	object_path(name, &id);
	if (is_news(srv, &id))
		log_at(LOG_ERROR, "server", s->head.trace,
		       "data of inode %llx are lost: object %u (%s/objects/%s) ends at %llu, "
		       "recorded was %llu; `sheaf find --damaged` lists all such files",
		       (unsigned long long)id.ino, id.index, srv->self->storage, name,
		       (unsigned long long)end, (unsigned long long)a->recorded);
	return -EIO;
}

int read_damaged(struct sreq *s, const struct wire_access *a, const struct wire_extent *list,
		 uint32_t n, uint64_t end)
{
	for (uint32_t i = 0; i < n && end < a->recorded; i++)
		if (list[i].length && list[i].offset < a->recorded &&
		    list[i].offset + list[i].length > end)
			return object_damaged(s, a, end);
	return 0;
}

int write_damaged(struct sreq *s, const struct wire_access *a, const struct wire_extent *list,
		  uint32_t n, uint64_t end)
{
	if (end >= a->recorded || (n == 1 && list[0].offset <= end))
		return 0;
	return object_damaged(s, a, end);
}
