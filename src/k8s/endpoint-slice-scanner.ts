import { SERVICE_NAME_LABEL } from '../model/cluster-endpoint-slice.ts';
import { backendsByReadiness, type EndpointSlice, type Ports } from '../servicecache/backend.ts';
import type { ByteCursor } from './byte-cursor.ts';
import {
  FieldGroup,
  objectScanner,
  scanAddress,
  scanList,
  scanObject,
  scanStrings,
} from './object-scanner.ts';
import {
  BACKEND_FIELDS,
  type BackendParts,
  backendOfParts,
  hasIPAddresses,
  readBackendParts,
  readSliceParts,
} from './parse-endpoint-slice.ts';
import type { ObjectScanner } from './resource.ts';
import type { SharedValues } from './shared-values.ts';

/** Returns a scanner of EndpointSlices, whose results equal those of `readEndpointSlice`. */
export function endpointSliceScanner(shared: SharedValues<Ports>): ObjectScanner<EndpointSlice> {
  const common = new FieldGroup(
    (fields) => (hasIPAddresses(fields) ? readSliceParts(fields, shared) : undefined),
    ({ annotations, ...others }) => ({ ...others, metadata: { annotations } }),
  );
  const backendParts = new FieldGroup(readBackendParts);
  let service = '';
  let addresses: string[] = [];
  let listed: { readonly address: string; readonly parts: BackendParts }[] = [];
  const scanEndpointFields = scanObject({
    addresses: scanList(
      scanAddress((address) => {
        addresses.push(address);
      }),
    ),
    ...backendParts.fields(BACKEND_FIELDS),
  });
  const scanEndpoint = (cursor: ByteCursor): boolean => {
    addresses = [];
    backendParts.begin();
    if (!scanEndpointFields(cursor)) return false;
    const parts = backendParts.value();
    if (parts === undefined) return false;
    for (const address of addresses) listed.push({ address, parts });
    return true;
  };
  return objectScanner({
    metadata: {
      labels: scanStrings((name, text) => {
        if (name === SERVICE_NAME_LABEL) service = text;
        return true;
      }),
      ...common.fields(['annotations']),
    },
    fields: {
      endpoints: scanList(scanEndpoint),
      ...common.fields(['addressType', 'ports']),
    },
    begin: () => {
      service = '';
      listed = [];
      common.begin();
    },
    value: ({ namespace, name }) => {
      const slice = common.value();
      if (service === '' || slice === undefined) return undefined;
      const { backends, notReady } = backendsByReadiness(
        listed.map(({ address, parts }) => backendOfParts(address, parts, slice)),
      );
      return { service: { namespace, name: service }, name, backends, notReady };
    },
  });
}
