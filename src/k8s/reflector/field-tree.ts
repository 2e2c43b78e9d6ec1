/** Nothing of a field is kept. */
export const LEFT_OUT: unique symbol = Symbol('left out');

interface Field {
  readonly name: Uint8Array;
  /** What is kept of it; `undefined`: all. */
  tree: FieldTree | undefined;
}

/** Which fields of an object are kept. */
export class FieldTree {
  readonly #fields: Field[] = [];

  /**
   * @param paths names with dots between them, each with all that is in the last. Lists have no names: `spec.ports.port` is in
   * each element of `ports`.
   */
  static of(paths: readonly string[]): FieldTree {
    const tree = new FieldTree();
    for (const path of paths) tree.#add(path.split('.'));
    return tree;
  }

  /** What is kept of the field with this name, in UTF-8; `undefined`: all. */
  find(bytes: Uint8Array, from: number, to: number): FieldTree | typeof LEFT_OUT | undefined {
    for (const { name, tree } of this.#fields) if (isAt(name, bytes, from, to)) return tree;
    return LEFT_OUT;
  }

  #add([first = '', ...below]: readonly string[]): void {
    const name = new TextEncoder().encode(first);
    let field = this.#fields.find((other) => isAt(other.name, name, 0, name.length));
    if (field === undefined) {
      field = { name, tree: new FieldTree() };
      this.#fields.push(field);
    }
    if (below.length === 0) field.tree = undefined;
    else if (field.tree !== undefined) field.tree.#add(below);
  }
}

function isAt(name: Uint8Array, bytes: Uint8Array, from: number, to: number): boolean {
  if (to - from !== name.length) return false;
  for (let i = 0; i < name.length; i++) if (bytes[from + i] !== name[i]) return false;
  return true;
}
