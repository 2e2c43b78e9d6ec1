// SPDX-License-Identifier: Apache-2.0
// Counts packets by the identities of their source and destination.

#include "ipcache.h"

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
