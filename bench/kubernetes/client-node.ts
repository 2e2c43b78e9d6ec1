import { readFileSync } from 'node:fs';
import {
  CoreV1Api,
  CustomObjectsApi,
  type Informer,
  KubeConfig,
  type KubernetesListObject,
  type KubernetesObject,
  makeInformer,
  type ObjectCache,
} from '@kubernetes/client-node';
import { type Follow, KINDS } from './following.ts';
import { ipOfEndpoint } from './ip-of-endpoint.ts';

type Held = Informer<KubernetesObject> & ObjectCache<KubernetesObject>;
type Kind = (typeof KINDS)['endpoints' | 'slices'];

/** The informers of `@kubernetes/client-node`; they list from the memory of the server, like ours. */
export const follow: Follow = ({ server, ca, token }) => {
  const config = new KubeConfig();
  config.loadFromClusterAndUser(
    { name: 'bench', server, caData: readFileSync(ca).toString('base64'), skipTLSVerify: false },
    { name: 'bench', token },
  );
  const custom = config.makeApiClient(CustomObjectsApi);
  const core = config.makeApiClient(CoreV1Api);
  const resourceVersion = '0';
  const others = ({ group, version, plural }: Kind): Held =>
    makeInformer(config, `/apis/${group}/${version}/${plural}`, async () => {
      const list: unknown = await custom.listCustomObjectForAllNamespaces({
        group,
        version,
        plural,
        resourceVersion,
      });
      return list as KubernetesListObject<KubernetesObject>;
    });
  const informers = {
    endpoints: others(KINDS.endpoints),
    services: makeInformer(config, '/api/v1/services', () =>
      core.listServiceForAllNamespaces({ resourceVersion }),
    ) as Held,
    slices: others(KINDS.slices),
  };
  return {
    sync: async (onIP) => {
      const onEndpoint = (object: KubernetesObject): void => onIP(ipOfEndpoint(object));
      informers.endpoints.on('add', onEndpoint);
      informers.endpoints.on('update', onEndpoint);
      // `start` resolves when the informer has listed and begun to watch.
      await Promise.all(Object.values(informers).map((informer) => informer.start()));
    },
    counts: () => [
      informers.endpoints.list().length,
      informers.services.list().length,
      informers.slices.list().length,
    ],
  };
};
