import { isKubernetesObject } from '../../../src/k8s/reflector/known-objects.ts';
import { MAX_OBJECT_BYTES } from '../../../src/k8s/reflector/list-query.ts';
import type { KubernetesObject, ResourceKind } from '../../../src/k8s/resource.ts';
import type { ApiRequest, ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import { textOf } from '../../../src/k8s/rest/api-transport.ts';
import { resourcePath } from '../../../src/k8s/rest/resource-path.ts';

/** An answer, read and parsed. */
export interface ReadAnswer {
  readonly status: number;
  readonly body: unknown;
}

/** A writer of objects of one kind. */
export class ApiUser {
  readonly #transport: ApiTransport;
  readonly #kind: ResourceKind;
  readonly #namespace: string | undefined;

  constructor(transport: ApiTransport, kind: ResourceKind, namespace?: string) {
    this.#transport = transport;
    this.#kind = kind;
    this.#namespace = namespace;
  }

  /** Sends a request, and reads the answer to its end; an answer that is no JSON is returned as text. */
  async ask(request: Omit<ApiRequest, 'signal'>): Promise<ReadAnswer> {
    const answer = await this.#transport.send({ ...request, signal: new AbortController().signal });
    const text = await textOf(answer.body, MAX_OBJECT_BYTES);
    try {
      return { status: answer.status, body: JSON.parse(text) };
    } catch {
      return { status: answer.status, body: text };
    }
  }

  path(name?: string): string {
    return resourcePath(this.#kind, { namespace: this.#namespace, name });
  }

  async create(name: string, content: object = {}, metadata: object = {}): Promise<KubernetesObject> {
    return this.#ok(
      await this.ask({
        method: 'POST',
        path: this.path(),
        body: { ...content, metadata: { name, ...metadata } },
      }),
    );
  }

  /** Changes the object by a merge patch. */
  async patch(name: string, patch: object): Promise<KubernetesObject> {
    const contentType = 'application/merge-patch+json';
    return this.#ok(await this.ask({ method: 'PATCH', path: this.path(name), body: patch, contentType }));
  }

  async delete(name: string): Promise<void> {
    const { status, body } = await this.ask({ method: 'DELETE', path: this.path(name) });
    if (status >= 300) throw new Error(`${status}: ${JSON.stringify(body)}`);
  }

  #ok({ status, body }: ReadAnswer): KubernetesObject {
    if (status < 300 && isKubernetesObject(body)) return body;
    throw new Error(`${status}: ${JSON.stringify(body)}`);
  }
}
