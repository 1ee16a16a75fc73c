/* Private to layout: views of an access with patterns, called by the functions of view.c. */
#ifndef SHEAF_LAYOUT_PATTERN_VIEW_H
#define SHEAF_LAYOUT_PATTERN_VIEW_H

#include "layout/layout.h"

size_t pattern_view_plan(struct view *v, const struct access *a, const struct layout *l,
			 uint32_t index, struct cursor *from, struct extent *out, size_t max,
			 uint64_t max_bytes);
size_t pattern_view_iov(struct view *v, uint64_t at, uint64_t len, struct iovec *out, size_t max,
			uint64_t *got);

#endif
