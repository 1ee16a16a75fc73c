/* What TCP knows about data that arrive on a connection, and its receive window. Threads: the
 * loop's. Errors: a kernel that does not tell a value leaves it 0; nothing fails. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

#include "core/env_real.h"

void sock_inflow(struct env *e, int fd, struct sock_inflow *out)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	(void)e;
	*out = (struct sock_inflow){ 0 };
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return;
	out->out_of_order = info.tcpi_rcv_ooopack; /* 0 where the kernel wrote less */
	out->segment = info.tcpi_rcv_mss;
	out->round_ns = info.tcpi_min_rtt == UINT32_MAX ? 0 : (uint64_t)info.tcpi_min_rtt * 1000;
}

void sock_limit_window(struct env *e, int fd, uint32_t bytes)
{
	int window = bytes ? (int)MIN(bytes, (uint32_t)INT32_MAX) : INT32_MAX;

	(void)e;
	setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &window, sizeof(window));
}
