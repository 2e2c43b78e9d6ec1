import { MAX_IDENTITY } from '../model/numeric-identity.ts';
import { canonicalAddress } from '../net/prefix.ts';
import {
  type EndpointClaim,
  endpointClaim,
  MAX_ADDRESSES,
  type SharedParts,
  withIP,
} from './endpoint-claim.ts';
import {
  FieldGroup,
  leaveToDecoder,
  objectScanner,
  scanAddress,
  scanList,
  scanObject,
  scanShared,
  scanTime,
  scanWholeObject,
} from './object-scanner.ts';
import { OPTIONAL_FIELDS, readOptionalFields } from './parse-cilium-endpoint.ts';
import type { ObjectScanner } from './resource.ts';

/** Returns a scanner of CiliumEndpoints, whose results equal those of `readCiliumEndpoint`. */
export function ciliumEndpointScanner(shared: SharedParts): ObjectScanner<EndpointClaim> {
  const optional = new FieldGroup((fields) => readOptionalFields(fields, shared));
  let createdAt = 0;
  let identity = -1;
  let hostIP = '';
  let ips: readonly string[] = [];
  const scanIP = scanAddress((ip) => {
    ips = withIP(ips, ip);
  });
  return objectScanner({
    metadata: {
      creationTimestamp: scanTime((time) => {
        createdAt = time;
      }),
      deletionTimestamp: leaveToDecoder,
    },
    fields: {
      status: scanObject({
        identity: scanObject({
          id: (cursor) => {
            identity = cursor.integer(MAX_IDENTITY);
            return identity >= 0;
          },
        }),
        networking: scanWholeObject({
          addressing: scanList(scanWholeObject({ ipv4: scanIP, ipv6: scanIP }), MAX_ADDRESSES),
          node: scanShared(
            (text) => (canonicalAddress(text) === text ? shared.host(text) : undefined),
            (ip) => {
              hostIP = ip;
            },
          ),
        }),
        ...optional.fields(OPTIONAL_FIELDS),
      }),
    },
    begin: () => {
      createdAt = 0;
      identity = -1;
      hostIP = '';
      ips = [];
      optional.begin();
    },
    value: (id, uid) => {
      const fields = optional.value();
      if (identity < 0 || hostIP === '' || ips.length === 0 || fields === undefined) return undefined;
      const { encryptKey, namedPorts, serviceAccount } = fields;
      const rank = { deleting: false, createdAt, uid };
      return endpointClaim('custom-resource', id, rank, {
        ips,
        identity,
        hostIP,
        encryptKey,
        namedPorts,
        serviceAccount,
      });
    },
  });
}
