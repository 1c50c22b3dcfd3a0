// Who hears of what the reader does.

export class Listeners {
  constructor() {
    this.lists = new Map();
  }

  /** Have `hear` called with what `name` brings; returns what ends that. */
  on(name, hear) {
    const list = this.lists.get(name) ?? new Set();
    this.lists.set(name, list.add(hear));
    return () => list.delete(hear);
  }

  tell(name, value) {
    for (const hear of this.lists.get(name) ?? []) hear(value);
  }
}
