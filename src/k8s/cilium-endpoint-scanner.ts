import type { NamedPorts } from '../ipcache/types.ts';
import { canonicalAddress } from '../net/prefix.ts';
import { ByteCursor, nameBytes } from './byte-cursor.ts';
import {
  type EndpointAddresses,
  endpointClaim,
  MAX_ADDRESSES,
  readPortsByName,
  type SharedParts,
} from './endpoint-addresses.ts';
import { MAX_IDENTITY } from './parse-cilium-endpoint.ts';
import { isName, parseObject, parseTime } from './parse-object.ts';
import { type ObjectScanner, ScannedObject } from './resource.ts';
import { SharedValues } from './shared-values.ts';

/*
 * A scanner for the bytes of a CiliumEndpoint as API servers send it: no white space, and no escapes in the fields that
 * are read. It reads the object once and creates only its value. The general decoder reads all other objects and
 * reports rejected fields.
 */

const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const COMMA = 0x2c;

const METADATA = nameBytes('metadata');
const STATUS = nameBytes('status');
const NAME = nameBytes('name');
const NAMESPACE = nameBytes('namespace');
const UID = nameBytes('uid');
const RESOURCE_VERSION = nameBytes('resourceVersion');
const CREATED = nameBytes('creationTimestamp');
const DELETED = nameBytes('deletionTimestamp');
const IDENTITY = nameBytes('identity');
const ID = nameBytes('id');
const NETWORKING = nameBytes('networking');
const NODE = nameBytes('node');
const ADDRESSING = nameBytes('addressing');
const IPV4 = nameBytes('ipv4');
const IPV6 = nameBytes('ipv6');
const ENCRYPTION = nameBytes('encryption');
const KEY = nameBytes('key');
const NAMED_PORTS = nameBytes('named-ports');
const SERVICE_ACCOUNT = nameBytes('service-account');

/** Longer texts of ports are parsed for each object, so that the memory of the known texts is bounded. */
const MAX_KNOWN_LENGTH = 512;

/** The ports of a text; undefined if the endpoint has none. */
interface ParsedPorts {
  readonly ports: NamedPorts | undefined;
}

const NO_PORTS: ParsedPorts = { ports: undefined };

/** Returns the ports of a JSON text; undefined if the general decoder must read them. */
function parsePorts(text: string, shared: SharedParts): ParsedPorts | undefined {
  try {
    const { value, rejections } = parseObject('', { list: JSON.parse(text) }, {}, (fields) =>
      readPortsByName([fields.list('list')], 'port'),
    );
    if (rejections.length > 0) return undefined;
    return value === undefined ? NO_PORTS : { ports: shared.ports(value) };
  } catch {
    return undefined;
  }
}

function isCanonical(text: string | undefined): text is string {
  return text !== undefined && canonicalAddress(text) === text;
}

/**
 * Reads CiliumEndpoints from bytes. The result equals that of `readCiliumEndpoint`. If a field is rejected, repeated,
 * or written in another form, there is no result.
 */
export class CiliumEndpointScanner implements ObjectScanner<EndpointAddresses> {
  readonly #shared: SharedParts;
  readonly #cursor = new ByteCursor();
  readonly #namespaces = new SharedValues<string>();
  readonly #ports = new SharedValues<ParsedPorts>();
  #name: string | undefined;
  #namespace: string | undefined;
  #uid: string | undefined;
  #version: string | undefined;
  #createdAt: number | undefined;
  #identity: number | undefined;
  #hostIP: string | undefined;
  #ips: string[] | undefined;
  #encryptKey: number | undefined;
  #namedPorts: ParsedPorts | undefined;
  #serviceAccount: string | undefined;

  constructor(shared: SharedParts) {
    this.#shared = shared;
  }

  get end(): number {
    return this.#cursor.at;
  }

  scan(bytes: Uint8Array, from: number): ScannedObject<EndpointAddresses> | undefined {
    this.#clear();
    this.#cursor.set(bytes, from);
    return this.#scanObject() ? this.#result() : undefined;
  }

  #clear(): void {
    this.#name = undefined;
    this.#namespace = undefined;
    this.#uid = undefined;
    this.#version = undefined;
    this.#createdAt = undefined;
    this.#identity = undefined;
    this.#hostIP = undefined;
    this.#ips = undefined;
    this.#encryptKey = undefined;
    this.#namedPorts = undefined;
    this.#serviceAccount = undefined;
  }

  #result(): ScannedObject<EndpointAddresses> | undefined {
    const name = this.#name;
    const namespace = this.#namespace;
    const uid = this.#uid;
    const resourceVersion = this.#version;
    const identity = this.#identity;
    const hostIP = this.#hostIP;
    const ips = this.#ips;
    if (name === undefined || namespace === undefined || !uid || !resourceVersion) return undefined;
    if (identity === undefined || hostIP === undefined || ips === undefined) return undefined;
    const shared = this.#shared;
    const value = endpointClaim(
      'custom-resource',
      { namespace, name },
      { deleting: false, createdAt: this.#createdAt ?? 0, uid },
      {
        ips,
        identity,
        hostIP: shared.host(hostIP),
        encryptKey: this.#encryptKey ?? 0,
        namedPorts: this.#namedPorts?.ports,
        serviceAccount: this.#serviceAccount && shared.account(this.#serviceAccount),
      },
    );
    return new ScannedObject({ name, namespace, uid, resourceVersion }, value);
  }

  #scanObject(): boolean {
    const cursor = this.#cursor;
    if (!cursor.skip(OPEN_OBJECT)) return false;
    do {
      if (!cursor.name()) return false;
      if (cursor.isName(METADATA)) {
        if (this.#name !== undefined || !this.#scanMetadata()) return false;
      } else if (cursor.isName(STATUS)) {
        if (this.#identity !== undefined || !this.#scanStatus()) return false;
      } else if (!cursor.skipValue()) return false;
    } while (cursor.skip(COMMA));
    return cursor.skip(CLOSE_OBJECT);
  }

  #scanMetadata(): boolean {
    const cursor = this.#cursor;
    if (!cursor.skip(OPEN_OBJECT)) return false;
    do {
      if (!cursor.name()) return false;
      if (cursor.isName(NAME)) {
        const name = cursor.string();
        if (this.#name !== undefined || !isName(name)) return false;
        this.#name = name;
      } else if (cursor.isName(NAMESPACE)) {
        const namespace = cursor.string();
        if (this.#namespace !== undefined || !isName(namespace)) return false;
        this.#namespace = this.#namespaces.share(namespace, namespace);
      } else if (cursor.isName(UID)) {
        if (this.#uid !== undefined) return false;
        this.#uid = cursor.string();
        if (this.#uid === undefined) return false;
      } else if (cursor.isName(RESOURCE_VERSION)) {
        if (this.#version !== undefined) return false;
        this.#version = cursor.string();
        if (this.#version === undefined) return false;
      } else if (cursor.isName(CREATED)) {
        if (this.#createdAt !== undefined) return false;
        this.#createdAt = parseTime(cursor.string() ?? '');
        if (Number.isNaN(this.#createdAt)) return false;
      } else if (cursor.isName(DELETED) || !cursor.skipValue()) return false;
    } while (cursor.skip(COMMA));
    return this.#name !== undefined && cursor.skip(CLOSE_OBJECT);
  }

  #scanStatus(): boolean {
    const cursor = this.#cursor;
    if (!cursor.skip(OPEN_OBJECT)) return false;
    do {
      if (!cursor.name()) return false;
      if (cursor.isName(IDENTITY)) {
        if (this.#identity !== undefined || !this.#scanIdentity()) return false;
      } else if (cursor.isName(NETWORKING)) {
        if (this.#hostIP !== undefined || !this.#scanNetworking()) return false;
      } else if (cursor.isName(ENCRYPTION)) {
        if (this.#encryptKey !== undefined || !this.#scanEncryption()) return false;
      } else if (cursor.isName(NAMED_PORTS)) {
        if (this.#namedPorts !== undefined || !this.#scanPorts()) return false;
      } else if (cursor.isName(SERVICE_ACCOUNT)) {
        if (this.#serviceAccount !== undefined) return false;
        this.#serviceAccount = cursor.string();
        if (this.#serviceAccount === undefined) return false;
      } else if (!cursor.skipValue()) return false;
    } while (cursor.skip(COMMA));
    return this.#identity !== undefined && cursor.skip(CLOSE_OBJECT);
  }

  #scanIdentity(): boolean {
    const cursor = this.#cursor;
    if (!cursor.skip(OPEN_OBJECT)) return false;
    do {
      if (!cursor.name()) return false;
      if (cursor.isName(ID)) {
        if (this.#identity !== undefined) return false;
        this.#identity = cursor.integer(MAX_IDENTITY);
        if (this.#identity < 0) return false;
      } else if (!cursor.skipValue()) return false;
    } while (cursor.skip(COMMA));
    return this.#identity !== undefined && cursor.skip(CLOSE_OBJECT);
  }

  #scanNetworking(): boolean {
    const cursor = this.#cursor;
    if (!cursor.skip(OPEN_OBJECT)) return false;
    do {
      if (!cursor.name()) return false;
      if (cursor.isName(NODE)) {
        const node = cursor.string();
        if (this.#hostIP !== undefined || !isCanonical(node)) return false;
        this.#hostIP = node;
      } else if (!cursor.isName(ADDRESSING) || this.#ips !== undefined || !this.#scanAddressing())
        return false;
    } while (cursor.skip(COMMA));
    return this.#hostIP !== undefined && cursor.skip(CLOSE_OBJECT);
  }

  #scanAddressing(): boolean {
    const cursor = this.#cursor;
    const ips: string[] = [];
    this.#ips = ips;
    if (!cursor.skip(OPEN_LIST)) return false;
    for (let size = 0; size < MAX_ADDRESSES; size++) {
      if (!this.#scanAddresses(ips)) return false;
      if (!cursor.skip(COMMA)) return cursor.skip(CLOSE_LIST);
    }
    return false;
  }

  /** Scans an IPv4 address, an IPv6 address, or both in this order, which is that of the general decoder. */
  #scanAddresses(ips: string[]): boolean {
    const cursor = this.#cursor;
    if (!cursor.skip(OPEN_OBJECT) || !cursor.name()) return false;
    const isIPv4 = cursor.isName(IPV4);
    if (!(isIPv4 || cursor.isName(IPV6)) || !this.#scanAddress(ips)) return false;
    if (isIPv4 && cursor.skip(COMMA))
      if (!cursor.name() || !cursor.isName(IPV6) || !this.#scanAddress(ips)) return false;
    return cursor.skip(CLOSE_OBJECT);
  }

  #scanAddress(ips: string[]): boolean {
    const ip = this.#cursor.string();
    if (!isCanonical(ip)) return false;
    if (!ips.includes(ip)) ips.push(ip);
    return true;
  }

  #scanEncryption(): boolean {
    const cursor = this.#cursor;
    this.#encryptKey = 0;
    if (!cursor.skip(OPEN_OBJECT)) return false;
    if (cursor.skip(CLOSE_OBJECT)) return true;
    if (!cursor.name() || !cursor.isName(KEY)) return false;
    this.#encryptKey = cursor.integer(255);
    return this.#encryptKey >= 0 && cursor.skip(CLOSE_OBJECT);
  }

  #scanPorts(): boolean {
    const text = this.#cursor.value();
    if (text === undefined) return false;
    const known = this.#ports.get(text);
    this.#namedPorts = known ?? parsePorts(text, this.#shared);
    if (this.#namedPorts === undefined) return false;
    if (known === undefined && text.length <= MAX_KNOWN_LENGTH) this.#ports.share(text, this.#namedPorts);
    return true;
  }
}
