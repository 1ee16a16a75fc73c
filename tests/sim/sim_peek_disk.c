/* State of a disk that no interface shows. */
#include "disk/disk_impl.h"
#include "sim_world.h"

uint64_t peek_floor(const struct disk *d, uint64_t ino, size_t *n_loaded)
{
	uint64_t epoch = floor_known(d, ino);

	*n_loaded = d->floors.count;
	return base_find(d->env, d->base, ino, &epoch) ? 0 : epoch;
}
