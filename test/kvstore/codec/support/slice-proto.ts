import { spawnSync } from 'node:child_process';
import protobuf from 'protobufjs';
import type { ClusterEndpointSlice } from '../../../../src/model/cluster-endpoint-slice.ts';
import { protocolName } from '../../../../src/net/port.ts';

/** The definitions of upstream, 1.20: pkg/clustermesh/types/endpointslice and pkg/k8s/slim/k8s/api/discovery/v1. */
const DEFINITIONS = `syntax = "proto2";
message ClusterEndpointSlice {
  optional string cluster = 1;
  optional uint32 clusterID = 2;
  optional string namespace = 3;
  optional string name = 4;
  map<string, string> labels = 5;
  map<string, string> annotations = 6;
  optional string addressType = 7;
  repeated Endpoint endpoints = 8;
  repeated EndpointPort ports = 9;
}
message Endpoint {
  repeated string addresses = 1;
  optional EndpointConditions conditions = 2;
  optional string hostname = 3;
  map<string, string> deprecatedTopology = 5;
  optional string nodeName = 6;
  optional string zone = 7;
  optional EndpointHints hints = 8;
}
message EndpointConditions { optional bool ready = 1; optional bool serving = 2; optional bool terminating = 3; }
message EndpointHints { repeated ForZone forZones = 1; }
message ForZone { optional string name = 1; }
message EndpointPort { optional string name = 1; optional string protocol = 2; optional int32 port = 3; }
`;

const type = protobuf.parse(DEFINITIONS, { keepCase: true }).root.lookupType('ClusterEndpointSlice');

/** Encodes the message with protobufjs, from fields named as in upstream's JSON. */
export function protoBytes(fields: object): Buffer {
  return Buffer.from(type.encode(type.fromObject(fields)).finish());
}

/** Decodes a message with protobufjs. Fields that are not in the message are missing. */
export function protoFields(bytes: Uint8Array): Record<string, unknown> {
  return type.toObject(type.decode(bytes));
}

/** Returns a slice with the names and nesting of upstream's JSON. */
export function upstreamJSON(slice: ClusterEndpointSlice): Record<string, unknown> {
  const { labels, annotations, endpoints, ports, ...key } = slice;
  const map = (name: string, entries: ReadonlyMap<string, string>): object =>
    entries.size === 0 ? {} : { [name]: Object.fromEntries(entries) };
  const list = (name: string, items: readonly unknown[]): object =>
    items.length === 0 ? {} : { [name]: items };
  const asEndpoint = (endpoint: ClusterEndpointSlice['endpoints'][number]): object => {
    const { addresses, conditions, hostname, nodeName, zone, forZones, deprecatedTopology } = endpoint;
    return {
      ...list('addresses', addresses),
      conditions: defined(conditions),
      ...defined({ hostname, nodeName, zone }),
      ...map('deprecatedTopology', deprecatedTopology),
      ...(forZones.length === 0 ? {} : { hints: { forZones: forZones.map((name) => ({ name })) } }),
    };
  };
  return {
    ...key,
    ...map('labels', labels),
    ...map('annotations', annotations),
    ...list('endpoints', endpoints.map(asEndpoint)),
    ...list(
      'ports',
      ports.map(({ name, protocol, port }) => ({ name, protocol: protocolName(protocol), port })),
    ),
  };
}

function defined(fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

/** Runs Debian's `zstd` program with this input. */
export function zstdProgram(args: readonly string[], input: Uint8Array): Buffer {
  const { status, stdout, stderr } = spawnSync('zstd', ['-q', '-c', ...args], {
    input,
    maxBuffer: 64 * 1024 * 1024,
  });
  if (status !== 0) throw new Error(`zstd ${args.join(' ')}: ${stderr}`);
  return stdout;
}
