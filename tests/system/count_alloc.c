/* A library to preload into a process. It counts the calls of malloc and related functions
 * in the file $COUNT_ALLOC_DIR/PID, which a test maps. sys_memory.c builds and uses this library.
 *
 * Threads: any; the counter is atomic. Errors: without the variable, or when the file cannot be
 * created, the counts are not visible to other processes. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static _Atomic uint64_t unseen, *calls = &unseen;

static __attribute__((constructor)) void count_alloc_init(void)
{
	const char *dir = getenv("COUNT_ALLOC_DIR");
	char path[512];
	void *p;
	int fd;

	if (!dir)
		return;
	snprintf(path, sizeof(path), "%s/%d", dir, (int)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (ftruncate(fd, sizeof(*calls)) == 0) {
		p = mmap(NULL, sizeof(*calls), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED)
			calls = p;
	}
	close(fd);
}

static void count(void)
{
	atomic_fetch_add_explicit(calls, 1, memory_order_relaxed);
}

void *malloc(size_t n)
{
	count();
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	count();
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	count();
	return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
	count();
	return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
	void *p;

	count();
	p = __libc_memalign(align, n);
	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}
