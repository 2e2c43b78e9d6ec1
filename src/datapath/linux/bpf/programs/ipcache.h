// SPDX-License-Identifier: Apache-2.0
// Looks up addresses of a packet in the ipcache map.

#include "kernel.h"

struct ipcache_key {
	__u32 length; // 32 + bits of the address
	__u16 cluster;
	__u8 pad;
	__u8 family;
	__u32 address[4];
};

struct ipcache_value {
	__u32 identity;
	__u32 tunnel;
	__u16 pad;
	__u8 key;
	__u8 flags;
};

MAP(ipcache, BPF_MAP_TYPE_LPM_TRIE, struct ipcache_key, struct ipcache_value);

#define IPV4 1
#define IPV6 2
// Offsets of the addresses in the headers of IPv4 and IPv6.
#define SOURCE 12, 8
#define DESTINATION 16, 24

// Returns the entry of the address at an offset of a packet's header; 0 if there is none, or if the packet is not an IP
// packet.
INLINE struct ipcache_value *look_up(struct __sk_buff *skb, __u32 at4, __u32 at6)
{
	struct ipcache_key key = {};

	if (skb->protocol == to_network16(ETH_P_IP)) {
		key.length = 32 + 32;
		key.family = IPV4;
		if (load_bytes(skb, at4, &key.address, 4, BPF_HDR_START_NET))
			return 0;
	} else if (skb->protocol == to_network16(ETH_P_IPV6)) {
		key.length = 32 + 128;
		key.family = IPV6;
		if (load_bytes(skb, at6, &key.address, 16, BPF_HDR_START_NET))
			return 0;
	} else {
		return 0;
	}
	return map_lookup(&ipcache, &key);
}
