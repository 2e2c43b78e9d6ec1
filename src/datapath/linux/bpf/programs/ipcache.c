// SPDX-License-Identifier: Apache-2.0
// Looks up the identities of the source and destination of a packet in the ipcache map.

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

// The identities of source and destination; 0 if the ipcache has no entry for the address.
struct traffic_key {
	__u32 source;
	__u32 destination;
};

struct traffic {
	__u64 packets;
	__u64 bytes;
};

MAP(traffic, BPF_MAP_TYPE_LRU_HASH, struct traffic_key, struct traffic);

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

// Writes the entry of a packet's destination to the packet's context: mark = identity, cb[0] = tunnel endpoint,
// cb[1] = encryption key and flags, cb[2] = 1 if there is an entry. Always passes the packet on.
SECTION("tcx")
int ipcache_mark(struct __sk_buff *skb)
{
	struct ipcache_value *value = look_up(skb, DESTINATION);
	skb->mark = value ? value->identity : 0;
	skb->cb[0] = value ? value->tunnel : 0;
	skb->cb[1] = value ? value->key | value->flags << 8 : 0;
	skb->cb[2] = value != 0;
	return TC_NEXT;
}

// Counts a packet by the identities of its source and destination, and passes it on unchanged.
SECTION("tcx")
int ipcache_count(struct __sk_buff *skb)
{
	if (skb->protocol != to_network16(ETH_P_IP) && skb->protocol != to_network16(ETH_P_IPV6))
		return TC_NEXT;
	struct ipcache_value *from = look_up(skb, SOURCE), *to = look_up(skb, DESTINATION);
	struct traffic_key key = { .source = from ? from->identity : 0, .destination = to ? to->identity : 0 };
	struct traffic *seen = map_lookup(&traffic, &key);
	if (!seen) {
		struct traffic none = {};
		map_update(&traffic, &key, &none, BPF_NOEXIST);
		seen = map_lookup(&traffic, &key);
	}
	if (seen) {
		__sync_fetch_and_add(&seen->packets, 1);
		__sync_fetch_and_add(&seen->bytes, skb->len);
	}
	return TC_NEXT;
}
