/** The result of {@link FieldTree.find} for a field that is not kept. */
export const OMITTED: unique symbol = Symbol('omitted');

interface Field {
  readonly name: Uint8Array;
  /** The part of the field to keep; undefined if the whole field is kept. */
  tree: FieldTree | undefined;
}

/** The fields of an object to keep. */
export class FieldTree {
  readonly #fields: Field[] = [];

  /**
   * @param paths names separated by dots; the field of the last name is kept with all content. Lists have no index:
   *   `spec.ports.port` is a field of each element of `ports`.
   */
  static of(paths: readonly string[]): FieldTree {
    const tree = new FieldTree();
    for (const path of paths) tree.#add(path.split('.'));
    return tree;
  }

  /**
   * Returns the part to keep of the field with this UTF-8 name; undefined if the whole field is kept; {@link OMITTED}
   * if nothing is kept.
   */
  find(bytes: Uint8Array, from: number, to: number): FieldTree | typeof OMITTED | undefined {
    for (const { name, tree } of this.#fields) if (matchesName(name, bytes, from, to)) return tree;
    return OMITTED;
  }

  #add([first = '', ...below]: readonly string[]): void {
    const name = new TextEncoder().encode(first);
    let field = this.#fields.find((other) => matchesName(other.name, name, 0, name.length));
    if (field === undefined) {
      field = { name, tree: new FieldTree() };
      this.#fields.push(field);
    }
    // A field that one path keeps as a whole stays whole, in any order of the paths.
    if (below.length === 0) field.tree = undefined;
    else if (field.tree !== undefined) field.tree.#add(below);
  }
}

function matchesName(name: Uint8Array, bytes: Uint8Array, from: number, to: number): boolean {
  if (to - from !== name.length) return false;
  for (let i = 0; i < name.length; i++) if (bytes[from + i] !== name[i]) return false;
  return true;
}
