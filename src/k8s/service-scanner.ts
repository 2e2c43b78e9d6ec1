import { List } from 'immutable';
import { HEADLESS_LABEL } from '../model/cluster-endpoint-slice.ts';
import { createService, type Service } from '../servicecache/service.ts';
import {
  FieldGroup,
  objectScanner,
  scanAddress,
  scanList,
  scanObject,
  scanStrings,
} from './object-scanner.ts';
import { labelsAndSelector, readService, SPEC_FIELDS } from './parse-service.ts';
import type { ObjectScanner } from './resource.ts';
import { SharedValues } from './shared-values.ts';

/** Metadata which `readService` requires. Only the settings of its result are used. */
const ANY_ID = { namespace: 'any', name: 'any' };

const DIGIT = /^\d/;

/** Returns a scanner of services with a cluster IP, whose results equal those of `readService`. */
export function serviceScanner(shared: SharedValues<Service['ports']>): ObjectScanner<Service> {
  const settings = new FieldGroup(
    (fields) => readService(fields, shared),
    ({ annotations, loadBalancer, ...spec }) => ({
      metadata: { ...ANY_ID, annotations },
      spec,
      status: { loadBalancer },
    }),
  );
  const names = new SharedValues<string>();
  let clusterIP = '';
  let clusterIPs: string[] = [];
  let labels = new Map<string, string>();
  let selector = new Map<string, string>();
  const addTo = (texts: Map<string, string>, name: string, text: string): boolean => {
    texts.set(names.share(name, name), text);
    // `JSON.parse` moves numeric names to the front, so an object with such a name is left to the general decoder.
    return !DIGIT.test(name);
  };
  return objectScanner({
    metadata: {
      labels: scanStrings((name, text) => addTo(labels, name, text)),
      ...settings.fields(['annotations']),
    },
    fields: {
      spec: scanObject({
        ...settings.fields(SPEC_FIELDS),
        selector: scanStrings((name, text) => addTo(selector, name, text)),
        clusterIP: scanAddress((ip) => {
          clusterIP = ip;
        }),
        clusterIPs: scanList(
          scanAddress((ip) => {
            if (!clusterIPs.includes(ip)) clusterIPs.push(ip);
          }),
        ),
      }),
      status: scanObject(settings.fields(['loadBalancer'])),
    },
    begin: () => {
      clusterIP = '';
      clusterIPs = [];
      labels = new Map();
      selector = new Map();
      settings.begin();
    },
    value: (id) => {
      const common = settings.value();
      if (clusterIP === '' || labels.has(HEADLESS_LABEL) || common === undefined) return undefined;
      return createService({
        ...common,
        id,
        addressing: 'assigned',
        clusterIPs: List(clusterIPs.length > 0 ? clusterIPs : [clusterIP]),
        ...labelsAndSelector(labels, selector),
      });
    },
  });
}
