// SPDX-License-Identifier: Apache-2.0
// The helpers of the kernel that the programs call, by number, and the declaration of maps. The agent creates the maps;
// a declaration is a name that scripts/build-bpf.ts finds in the object file.

#include <linux/bpf.h>

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline)) inline

#define MAP(name, kind, key_type, value_type) \
	struct { \
		int (*type)[kind]; \
		key_type *key; \
		value_type *value; \
	} name SECTION("maps")

static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*map_update)(void *map, const void *key, const void *value, __u64 flags) =
	(void *)BPF_FUNC_map_update_elem;
static __u64 (*nanoseconds)(void) = (void *)BPF_FUNC_ktime_get_ns;
static __u32 (*random32)(void) = (void *)BPF_FUNC_get_prandom_u32;
static __u64 (*socket_cookie)(void *context) = (void *)BPF_FUNC_get_socket_cookie;
static int (*set_retval)(int value) = (void *)BPF_FUNC_set_retval;
static __u64 (*netns_cookie)(void *context) = (void *)BPF_FUNC_get_netns_cookie;

static long (*load_bytes)(const void *skb, __u32 offset, void *to, __u32 size, __u32 start_header) =
	(void *)BPF_FUNC_skb_load_bytes_relative;

#define to_network16(number) __builtin_bswap16(number)

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define TC_NEXT -1
