// SPDX-License-Identifier: Apache-2.0
// Load balancing of services when sockets connect and send: replaces a frontend by one of its backends.

#include "kernel.h"

enum { NO_SERVICE, TRANSLATED, REFUSED, AGAIN };
enum { DENY, ALLOW };

#define TCP 6
#define UDP 17
#define ECONNREFUSED 111

// Returns the verdict of a program. Since Linux 5.18, a program can set the error of a denied call. For older kernels,
// the agent removes that call from the program, and the error is EPERM.
INLINE int verdict(int outcome)
{
	if (outcome != REFUSED)
		return ALLOW;
	set_retval(-ECONNREFUSED);
	return DENY;
}

#define AFFINITY 0x10

// The cookie of the network namespace whose loopback addresses answer for services: that of the agent. 0: the initial
// one.
MAP(host, BPF_MAP_TYPE_ARRAY, __u32, __u64);

// Returns false in another network namespace than the agent's, such as that of a pod, where loopback addresses are the
// pod's.
INLINE int is_host(struct bpf_sock_addr *context)
{
	__u32 first = 0;
	__u64 *cookie = map_lookup(&host, &first);
	return cookie && netns_cookie(context) == (*cookie ? *cookie : netns_cookie(0));
}

#define FAMILY 4
#define WORDS 1
#define TAIL 2
#define IS_LOOPBACK(words) (((words)[0] & 0xff) == 127)
#include "socket-family.h"
#undef FAMILY
#undef WORDS
#undef TAIL
#undef IS_LOOPBACK

#define FAMILY 6
#define WORDS 4
#define TAIL 1
#define IS_LOOPBACK(words) (!(words)[0] && !(words)[1] && !(words)[2] && (words)[3] == __builtin_bswap32(1))
#include "socket-family.h"

#define MAPPED __builtin_bswap32(0xffff)

INLINE int is_mapped(struct bpf_sock_addr *context)
{
	return context->user_ip6[0] == 0 && context->user_ip6[1] == 0 && context->user_ip6[2] == MAPPED;
}

INLINE int forward4(struct bpf_sock_addr *context)
{
	struct address4 address = { { context->user_ip4 } };
	__u16 port = context->user_port;
	int outcome = translate4(context, &address, &port);
	if (outcome == TRANSLATED) {
		context->user_ip4 = address.words[0];
		context->user_port = port;
	}
	return verdict(outcome);
}

INLINE int back4(struct bpf_sock_addr *context)
{
	struct address4 address = { { context->user_ip4 } };
	__u16 port = context->user_port;
	if (restore4(context, &address, &port) == TRANSLATED) {
		context->user_ip4 = address.words[0];
		context->user_port = port;
	}
	return ALLOW;
}

// For an IPv6 socket with an IPv4-mapped destination.
INLINE int forward_mapped(struct bpf_sock_addr *context)
{
	struct address4 address = { { context->user_ip6[3] } };
	__u16 port = context->user_port;
	int outcome = translate4(context, &address, &port);
	if (outcome == TRANSLATED) {
		context->user_ip6[3] = address.words[0];
		context->user_port = port;
	}
	return verdict(outcome);
}

INLINE int back_mapped(struct bpf_sock_addr *context)
{
	struct address4 address = { { context->user_ip6[3] } };
	__u16 port = context->user_port;
	if (restore4(context, &address, &port) == TRANSLATED) {
		context->user_ip6[3] = address.words[0];
		context->user_port = port;
	}
	return ALLOW;
}

INLINE void read6(struct bpf_sock_addr *context, struct address6 *address)
{
	address->words[0] = context->user_ip6[0];
	address->words[1] = context->user_ip6[1];
	address->words[2] = context->user_ip6[2];
	address->words[3] = context->user_ip6[3];
}

INLINE void write6(struct bpf_sock_addr *context, struct address6 *address, __u16 port)
{
	context->user_ip6[0] = address->words[0];
	context->user_ip6[1] = address->words[1];
	context->user_ip6[2] = address->words[2];
	context->user_ip6[3] = address->words[3];
	context->user_port = port;
}

INLINE int forward6(struct bpf_sock_addr *context)
{
	if (is_mapped(context))
		return forward_mapped(context);
	struct address6 address;
	__u16 port = context->user_port;
	read6(context, &address);
	int outcome = translate6(context, &address, &port);
	if (outcome == TRANSLATED)
		write6(context, &address, port);
	return verdict(outcome);
}

INLINE int back6(struct bpf_sock_addr *context)
{
	if (is_mapped(context))
		return back_mapped(context);
	struct address6 address;
	__u16 port = context->user_port;
	read6(context, &address);
	if (restore6(context, &address, &port) == TRANSLATED)
		write6(context, &address, port);
	return ALLOW;
}

#define PROGRAM(name, body) \
	SECTION("socket") int name(struct bpf_sock_addr *context) { return body(context); }

PROGRAM(socket_connect4, forward4)
PROGRAM(socket_connect6, forward6)
PROGRAM(socket_sendmsg4, forward4)
PROGRAM(socket_sendmsg6, forward6)
PROGRAM(socket_recvmsg4, back4)
PROGRAM(socket_recvmsg6, back6)
PROGRAM(socket_getpeername4, back4)
PROGRAM(socket_getpeername6, back6)
