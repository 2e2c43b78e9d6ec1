// SPDX-License-Identifier: Apache-2.0
// Looks up in the ipcache map who a packet is for.

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

// Leaves in the packet's context what the map says of its destination: mark = identity, cb[0] = tunnel endpoint,
// cb[1] = encryption key and flags, cb[2] = whether there is an entry. The packet goes on in any case.
SECTION("tcx")
int ipcache_mark(struct __sk_buff *skb)
{
	struct ipcache_key key = { .length = 32 + 128 };
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (skb->protocol == to_network16(ETH_P_IP)) {
		if (data + ETH_BYTES + 20 > end)
			return TC_NEXT;
		key.length = 32 + 32;
		key.family = IPV4;
		key.address[0] = *(__u32 *)(data + ETH_BYTES + 16);
	} else if (skb->protocol == to_network16(ETH_P_IPV6)) {
		if (data + ETH_BYTES + 40 > end)
			return TC_NEXT;
		key.family = IPV6;
		__u32 *address = data + ETH_BYTES + 24;
		key.address[0] = address[0];
		key.address[1] = address[1];
		key.address[2] = address[2];
		key.address[3] = address[3];
	} else {
		return TC_NEXT;
	}

	struct ipcache_value *value = map_lookup(&ipcache, &key);
	skb->mark = value ? value->identity : 0;
	skb->cb[0] = value ? value->tunnel : 0;
	skb->cb[1] = value ? value->key | value->flags << 8 : 0;
	skb->cb[2] = value != 0;
	return TC_NEXT;
}
