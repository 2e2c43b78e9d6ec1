/** A label as text: `source:key=value`. */
export interface NaiveLabel {
  readonly source: string;
  readonly key: string;
  readonly value: string;
}

interface NaiveSaid {
  readonly source: string;
  readonly labels: readonly NaiveLabel[];
}

/** The expected identity of a prefix: a reserved number, or labels as one text. */
export interface Expected {
  readonly key: string;
  readonly source: string;
  readonly what: number | string;
  readonly hostIP: string | undefined;
  readonly encryptKey: number;
}

const ORDER =
  'kube-apiserver local kvstore custom-resource k8s clustermesh directory api generated restored unspec';

function bits(cidr: string): readonly [address: bigint, length: number, width: number] {
  const [address = '', length = ''] = cidr.split('/');
  if (!address.includes(':')) {
    const value = address.split('.').reduce((sum, octet) => sum * 256n + BigInt(octet), 0n);
    return [value, Number(length), 32];
  }
  const [left = '', right = ''] = address.split('::');
  const groups = (text: string): readonly string[] => (text === '' ? [] : text.split(':'));
  const middle = Array.from({ length: 8 - groups(left).length - groups(right).length }, () => '0');
  const all = address.includes('::') ? [...groups(left), ...middle, ...groups(right)] : groups(address);
  return [all.reduce((sum, group) => sum * 65_536n + BigInt(`0x${group}`), 0n), Number(length), 128];
}

function covers(outer: string, inner: string): boolean {
  const [a, long, width] = bits(outer);
  const [b, longer, other] = bits(inner);
  return width === other && long < longer && a >> BigInt(width - long) === b >> BigInt(width - long);
}

/** A naive layer: stores the inputs, and computes everything on each read. */
export class NaiveMetadata {
  readonly #said = new Map<string, Map<string, NaiveSaid>>();
  readonly nodes: Map<string, { identity: number; hostIP: string | undefined; encryptKey: number }> =
    new Map();
  readonly #dual: boolean;

  constructor(dual: boolean) {
    this.#dual = dual;
  }

  upsert(cidr: string, source: string, resource: string, labels: readonly NaiveLabel[]): void {
    const of = this.#said.get(cidr) ?? new Map<string, NaiveSaid>();
    of.set(resource, { source, labels });
    this.#said.set(cidr, of);
  }

  remove(cidr: string, resource: string): void {
    this.#said.get(cidr)?.delete(resource);
    if (this.#said.get(cidr)?.size === 0) this.#said.delete(cidr);
  }

  expected(): readonly Expected[] {
    return [...this.#said.keys()].flatMap((cidr) => this.#expectedOf(cidr) ?? []);
  }

  #ordered(cidr: string): readonly NaiveSaid[] {
    const rank = (source: string): number => ORDER.split(' ').indexOf(source);
    return [...(this.#said.get(cidr) ?? [])]
      .sort(([a, x], [b, y]) => rank(x.source) - rank(y.source) || (a < b ? -1 : 1))
      .map(([, said]) => said);
  }

  #expectedOf(cidr: string): Expected | undefined {
    const around = [...this.#said.keys()].filter((other) => covers(other, cidr));
    around.sort((a, b) => bits(b)[1] - bits(a)[1]);
    const labels: NaiveLabel[] = [];
    for (const label of [cidr, ...around].flatMap((each) =>
      this.#ordered(each).flatMap((said) => said.labels),
    )) {
      const repeats = labels.some(({ key }) => key === label.key);
      const second = label.source === 'cidr' && labels.some(({ source }) => source === 'cidr');
      if (!repeats && !second) labels.push(label);
    }
    const source = this.#ordered(cidr)[0]?.source ?? '';
    const [address = '', length] = cidr.split('/');
    const full = length === (cidr.includes(':') ? '128' : '32');
    const apiserver = labels.some(({ key }) => key === 'kube-apiserver');
    const node = apiserver && full ? this.nodes.get(address) : undefined;
    if (node?.identity === 1) return undefined;
    const has = (name: string): boolean =>
      labels.some((label) => label.source === 'reserved' && label.key === name);
    const at = (inCluster: boolean): string => (full && (inCluster || apiserver) ? address : cidr);
    const rest = { source, hostIP: node?.hostIP, encryptKey: node?.encryptKey ?? 0 };
    if (has('host')) return { key: at(true), what: 1, ...rest };
    if (has('remote-node') || node?.identity === 6) {
      return { key: at(true), what: has('kube-apiserver') ? 7 : 6, ...rest };
    }
    if (has('health')) return { key: at(true), what: 4, ...rest };
    if (has('ingress')) return { key: at(true), what: 8, ...rest };
    const world = !this.#dual ? 'world' : cidr.includes(':') ? 'world-ipv6' : 'world-ipv4';
    const texts = labels.filter(({ key }) => !key.startsWith('world'));
    if (has('kube-apiserver') && !texts.some((label) => label.source === 'cidr') && length !== '0') {
      const written = address.replace(/^:/, '0:').replace(/:$/, ':0').replaceAll(':', '-');
      texts.push({ source: 'cidr', key: `${written}/${length}`, value: '' });
    }
    if (texts.length === 0) {
      return { key: at(false), what: world === 'world' ? 2 : world === 'world-ipv4' ? 9 : 10, ...rest };
    }
    texts.push({ source: 'reserved', key: world, value: '' });
    const what = texts.map((label) => `${label.source}:${label.key}=${label.value}`).sort();
    return { key: at(false), what: what.join(';'), ...rest };
  }
}
