// SPDX-License-Identifier: Apache-2.0
// The code of the socket programs for one family. It is included once for each family, with FAMILY, WORDS, TAIL and
// IS_LOOPBACK defined. TAIL pads keys to a multiple of 8 bytes, so that no uninitialized byte is read. Integers are
// little-endian, addresses and ports in network order. The layouts of services and backends are those of Cilium 1.17.

#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
#define OWN(name) GLUE(name, FAMILY)

struct OWN(address) {
	__u32 words[WORDS];
};

// Slot 0 is the frontend itself; slots 1 to `count` are its backends.
struct OWN(service_key) {
	struct OWN(address) address;
	__u16 port;
	__u16 slot;
	__u8 protocol;
	__u8 scope;
	__u16 pad;
};

struct OWN(service) {
	__u32 number; // in a slot: the number of the backend; in a frontend with affinity: its time in seconds
	__u16 count;
	__u16 index;
	__u8 flags;
	__u8 flags2;
	__u16 pad;
};

struct OWN(backend) {
	struct OWN(address) address;
	__u16 port;
	__u8 protocol;
	__u8 flags;
	__u16 cluster;
	__u8 zone;
	__u8 pad;
};

struct OWN(member) {
	struct OWN(address) address;
	__u16 port;
	__u8 protocol;
	__u8 pad;
	__u32 backend;
};

struct OWN(client) {
	__u64 namespace;
	struct OWN(address) address;
	__u16 port;
	__u8 protocol;
	__u8 pad;
	__u32 reserved[TAIL];
};

struct OWN(choice) {
	__u64 used; // time of the last connection, ns since boot
	__u32 backend;
	__u32 pad;
};

struct OWN(peer) {
	__u64 socket;
	struct OWN(address) address;
	__u16 port;
	__u16 pad;
	__u32 reserved[TAIL];
};

struct OWN(origin) {
	struct OWN(address) address;
	__u16 port;
	__u16 pad;
};

MAP(OWN(services), BPF_MAP_TYPE_HASH, struct OWN(service_key), struct OWN(service));
MAP(OWN(backends), BPF_MAP_TYPE_HASH, __u32, struct OWN(backend));
// The backends of frontends with affinity. A client does not stay with a backend that is not a member any more.
MAP(OWN(members), BPF_MAP_TYPE_HASH, struct OWN(member), __u32);
MAP(OWN(clients), BPF_MAP_TYPE_LRU_HASH, struct OWN(client), struct OWN(choice));
// The requested frontend of each socket and backend. TCP and UDP are separate, so that UDP flows do not evict TCP
// connections.
MAP(OWN(peers), BPF_MAP_TYPE_LRU_HASH, struct OWN(peer), struct OWN(origin));
MAP(OWN(datagrams), BPF_MAP_TYPE_LRU_HASH, struct OWN(peer), struct OWN(origin));

// Returns the backend that the client used last, if the frontend still has it and the affinity time is not over.
INLINE struct OWN(backend) *OWN(backend_of_client)(struct OWN(client) *client, __u32 seconds, __u32 *number)
{
	struct OWN(choice) *choice = map_lookup(&OWN(clients), client);
	if (!choice || nanoseconds() - choice->used > seconds * 1000000000ULL)
		return 0;
	struct OWN(member) member = {
		.address = client->address,
		.port = client->port,
		.protocol = client->protocol,
		.backend = choice->backend,
	};
	if (!map_lookup(&OWN(members), &member))
		return 0;
	*number = member.backend;
	return map_lookup(&OWN(backends), number);
}

INLINE struct OWN(backend) *OWN(any_backend)(struct OWN(service_key) *key, __u32 count, __u32 *number)
{
	key->slot = 1 + random32() % count;
	struct OWN(service) *slot = map_lookup(&OWN(services), key);
	key->slot = 0;
	if (!slot)
		return 0;
	*number = slot->number;
	return map_lookup(&OWN(backends), number);
}

// Chooses a backend of a frontend. Returns AGAIN if the slot was just deleted, because the frontend then has another
// count.
INLINE int OWN(choose)(struct bpf_sock_addr *context, struct OWN(service_key) *key, struct OWN(backend) **backend)
{
	__u32 number = 0;
	struct OWN(service) *service = map_lookup(&OWN(services), key);
	if (!service)
		return NO_SERVICE;
	__u32 count = service->count;
	if (!count)
		return REFUSED;
	if (!(service->flags & AFFINITY)) {
		*backend = OWN(any_backend)(key, count, &number);
		return *backend ? TRANSLATED : AGAIN;
	}
	struct OWN(client) client = {
		.namespace = netns_cookie(context),
		.address = key->address,
		.port = key->port,
		.protocol = key->protocol,
	};
	*backend = OWN(backend_of_client)(&client, service->number, &number);
	if (!*backend)
		*backend = OWN(any_backend)(key, count, &number);
	if (!*backend)
		return AGAIN;
	struct OWN(choice) choice = { .used = nanoseconds(), .backend = number };
	map_update(&OWN(clients), &client, &choice, BPF_ANY);
	return TRANSLATED;
}

// Stores the origin of a peer if it changed. An equal one is not written, because each datagram calls this and a write
// locks the map.
INLINE void OWN(remember)(void *map, struct OWN(peer) *peer, struct OWN(origin) *origin)
{
	struct OWN(origin) *known = map_lookup(map, peer);
	if (known && known->port == origin->port && known->address.words[0] == origin->address.words[0] &&
	    known->address.words[WORDS - 1] == origin->address.words[WORDS - 1] &&
	    known->address.words[WORDS / 2] == origin->address.words[WORDS / 2] &&
	    known->address.words[WORDS / 4] == origin->address.words[WORDS / 4])
		return;
	map_update(map, peer, origin, BPF_ANY);
}

// Returns the outcome for a port without a frontend. A cluster IP has an entry for port 0 of protocol 0, and refuses
// the port. Port 0 is not refused, because libraries connect to it only to learn their own address.
INLINE int OWN(no_frontend)(struct bpf_sock_addr *context, struct OWN(service_key) *key)
{
	if (!key->port || (context->protocol != TCP && context->protocol != UDP))
		return NO_SERVICE;
	key->port = 0;
	key->protocol = 0;
	return map_lookup(&OWN(services), key) ? REFUSED : NO_SERVICE;
}

// Replaces a frontend by a backend, and stores the frontend for `restore`.
INLINE int OWN(translate)(struct bpf_sock_addr *context, struct OWN(address) *address, __u16 *port)
{
	if (IS_LOOPBACK(address->words) && !is_host(context))
		return NO_SERVICE;
	struct OWN(service_key) key = { .address = *address, .port = *port, .protocol = context->protocol };
	struct OWN(backend) *backend = 0;

	// Unrolled, because without CAP_PERFMON the verifier also follows mispredicted branches and rejects a loop as endless.
	int outcome = OWN(choose)(context, &key, &backend);
	if (outcome == NO_SERVICE)
		return OWN(no_frontend)(context, &key);
	if (outcome == AGAIN)
		outcome = OWN(choose)(context, &key, &backend);
	if (outcome == AGAIN)
		outcome = OWN(choose)(context, &key, &backend);
	if (outcome == AGAIN)
		outcome = OWN(choose)(context, &key, &backend);
	if (outcome != TRANSLATED || !backend)
		return REFUSED;

	struct OWN(peer) peer = {
		.socket = socket_cookie(context),
		.address = backend->address,
		.port = backend->port,
	};
	struct OWN(origin) origin = { .address = *address, .port = *port };
	if (context->protocol == UDP)
		OWN(remember)(&OWN(datagrams), &peer, &origin);
	else
		OWN(remember)(&OWN(peers), &peer, &origin);
	*address = backend->address;
	*port = backend->port;
	return TRANSLATED;
}

// Replaces the backend that answered by the frontend that the socket requested.
INLINE int OWN(restore)(struct bpf_sock_addr *context, struct OWN(address) *address, __u16 *port)
{
	struct OWN(peer) peer = { .socket = socket_cookie(context), .address = *address, .port = *port };
	struct OWN(origin) *origin;
	if (context->protocol == UDP)
		origin = map_lookup(&OWN(datagrams), &peer);
	else
		origin = map_lookup(&OWN(peers), &peer);
	if (!origin)
		return NO_SERVICE;
	*address = origin->address;
	*port = origin->port;
	return TRANSLATED;
}

#undef OWN
#undef GLUE
#undef GLUE_
