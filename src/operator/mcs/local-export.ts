import type { Rejection } from '../../base/rejection.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import { serviceExportKey } from '../../kvstore/codec/keys.ts';
import { decodeServiceExport } from '../../kvstore/codec/service-export.ts';
import type { ServiceExport } from '../../model/service-export.ts';
import { field } from '../collect/field.ts';

/**
 * The service exported by a ServiceExport of the local cluster, or the reason and message of its condition `Valid`.
 */
export type LocalExport =
  | { readonly isValid: true; readonly service: ServiceExport; readonly dropped: readonly Rejection[] }
  | {
      readonly isValid: false;
      readonly reason: string;
      readonly message: string;
      readonly rejection?: Rejection | undefined;
    };

/**
 * Returns the service exported by a ServiceExport. The objects are parsed by the decoder of the published values, so
 * that a cluster publishes exactly the services that readers accept.
 *
 * @param service the Service of the same name; undefined if there is none
 */
export function readLocalExport(
  cluster: string,
  serviceExport: KubernetesObject,
  service: KubernetesObject | undefined,
): LocalExport {
  const { namespace = '', name } = serviceExport.metadata;
  if (service === undefined) return { isValid: false, reason: 'NoService', message: "Service doesn't exist" };
  const spec = (part: string): unknown => field(service, 'spec', part);
  if (spec('type') === 'ExternalName') {
    const message = 'Service type ExternalName is not supported';
    return { isValid: false, reason: 'InvalidServiceType', message };
  }
  const key = { cluster, namespace, name };
  const json = {
    ...key,
    annotations: field(serviceExport, 'spec', 'exportedAnnotations'),
    labels: field(serviceExport, 'spec', 'exportedLabels'),
    exportCreationTimestamp: field(serviceExport, 'metadata', 'creationTimestamp'),
    ports: spec('ports'),
    type: spec('clusterIP') === 'None' ? 'Headless' : 'ClusterSetIP',
    sessionAffinity: spec('sessionAffinity'),
    sessionAffinityConfig: spec('sessionAffinityConfig'),
    ipFamilies: spec('ipFamilies'),
    internalTrafficPolicy: spec('internalTrafficPolicy'),
    trafficDistribution: spec('trafficDistribution'),
  };
  const decoded = decodeServiceExport(key, { json }, serviceExportKey(key));
  if (decoded.ok) return { isValid: true, service: decoded.value, dropped: decoded.dropped ?? [] };
  const { rejection } = decoded;
  return { isValid: false, reason: 'InvalidService', message: rejection.message, rejection };
}
