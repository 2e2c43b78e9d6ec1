import type { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { CLUSTER_TYPES, type ResourceType, typeMeta } from '../../../src/k8s/memory/resource-types.ts';
import { resourcePath } from '../../../src/k8s/rest/resource-path.ts';
import type { KubernetesContent } from './objects.ts';

function typeOf({ apiVersion, kind }: KubernetesContent): ResourceType {
  const type = CLUSTER_TYPES.find((one) => one.kind === kind && typeMeta(one).apiVersion === apiVersion);
  if (type === undefined) throw new Error(`${apiVersion} ${kind} is not served`);
  return type;
}

/** An API server, and the objects that its users want in it. */
export class ApiContents {
  readonly server: MemoryApiServer;
  #written = new Map<string, KubernetesContent>();
  #addresses = 100;

  constructor(server: MemoryApiServer) {
    this.server = server;
  }

  /** Returns a function that restores the present contents, like those of a backup. */
  backup(): () => void {
    const snapshot = this.server.backup();
    const written = new Map(this.#written);
    return () => {
      this.server.restore(snapshot);
      this.#written = written;
    };
  }

  /** Creates, replaces and deletes objects until the server has these. An object with another uid is a new object. */
  async become(objects: readonly KubernetesContent[]): Promise<void> {
    const wanted = new Map(objects.map((object) => [this.#path(object), object]));
    for (const [path, { metadata }] of [...this.#written]) {
      const next = wanted.get(path);
      if (next?.metadata['uid'] === metadata['uid'] && next !== undefined) continue;
      await this.#send('DELETE', path);
      this.#written.delete(path);
    }
    for (const [path, object] of wanted) await this.#write(path, object);
  }

  async #write(path: string, object: KubernetesContent): Promise<void> {
    const previous = this.#written.get(path);
    if (JSON.stringify(previous) === JSON.stringify(object)) return;
    const { uid: _, ...metadata } = object.metadata;
    const body = { ...object, metadata };
    const collection = path.slice(0, path.lastIndexOf('/'));
    await (previous === undefined ? this.#send('POST', collection, body) : this.#send('PUT', path, body));
    if (typeOf(object).hasStatus === true && object['status'] !== undefined)
      await this.#send('PUT', `${path}/status`, body);
    this.#written.set(path, object);
  }

  /** Gives each Service without a cluster IP one, as an API server does for the Services that an operator creates. */
  async assignClusterIPs(): Promise<void> {
    const { items } = (await this.#send('GET', '/api/v1/services')) as {
      readonly items: readonly KubernetesContent[];
    };
    for (const service of items) {
      const spec = service['spec'] as { readonly clusterIP?: string };
      if (spec.clusterIP !== undefined) continue;
      const clusterIP = `172.31.0.${++this.#addresses}`;
      const path = this.#path({ ...service, apiVersion: 'v1', kind: 'Service' });
      await this.#send('PUT', path, { ...service, spec: { ...spec, clusterIP, clusterIPs: [clusterIP] } });
    }
  }

  #path(object: KubernetesContent): string {
    const { name, namespace } = object.metadata;
    return resourcePath(typeOf(object), { namespace, name });
  }

  async #send(method: string, path: string, body?: object): Promise<unknown> {
    const request = { method, path, authorization: '', contentType: 'application/json' };
    const closed = new AbortController().signal;
    // The users of an API server that is away use another one of the same etcd.
    const answer = await this.server.handleElsewhere({
      ...request,
      body: body === undefined ? '' : JSON.stringify(body),
      closed,
    });
    const text = await new Response(ReadableStream.from(answer.body)).text();
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return JSON.parse(text);
  }
}
