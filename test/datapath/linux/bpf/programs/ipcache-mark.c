// SPDX-License-Identifier: Apache-2.0
// Shows what programs find in the ipcache map.

#include "../../../../../src/datapath/linux/bpf/programs/ipcache.h"

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
