// The decoder, a token at a time: what it reads, what it keeps, and what it says next.

VIEWS.decoder = {
  title: "The decoder, token by token",
  controls: {
    token: { text: "tokens read", range: () => [1, now.inputs.length, 1], value: () => chosenOf("token", now.inputs.length + 1) || 1 },
    kind: { text: "cache of", options: () => ["decoder", "cross"].map(kind => [kind, data.titles[kind]]) },
    layer: HEAD_CONTROLS.layer,
  },
  draw(root) {
    const read = chosenOf("token", now.inputs.length + 1) || 1;
    const source = encode(model, now.ids, { ...now.options, trace: false });
    let state = begin(model);
    let logits;
    for (const token of now.inputs.slice(0, read)) {
      ({ logits, state } = next(model, source, state, token, { ...now.options, trace: false }));
    }
    const names = now.inputs.slice(0, read).map(label);

    const buttons = make("p", undefined, root, "pages");
    for (const [text, to] of [["‹ back", read - 1], ["forwards ›", read + 1]]) {
      const button = make("button", text, buttons);
      button.dataset.key = text;
      button.setAttribute("aria-disabled", to < 1 || to > now.inputs.length);
      button.addEventListener("click", () => { if (to >= 1 && to <= now.inputs.length) go({ token: String(to) }); });
    }
    step(root, "1. It reads one token", "", "All that it has written so far; the last is new.");
    const line = make("p", undefined, root, "tokens");
    names.forEach((name, t) => make("span", name, line, t === read - 1 ? "newest" : ""));

    step(root, "2. It says which comes next", "p = softmax(x E^T)", "");
    const best = largest(softmax(logits), 5);
    grid(root, { name: "the most probable next tokens", rows: ["p"], columns: best.map(([id]) => label(id)),
      values: [best.map(([, p]) => p)], text: share, heat: p => p });
    make("p", `Of these the search went on with “${label(now.output[read - 1]).trim()}”.`, root, "caption");

    step(root, "3. It keeps keys and values", "", "");
    if (!state.cache) {
      make("p", "Without the mask nothing can be kept: each new token changes all before it, so all are read again.", root);
      return;
    }
    const isCross = kindOf() === "cross";
    const { keys, values } = (isCross ? source.memory : state.cache)[layerOf()];
    const rows = isCross ? now.ids.map(label) : names;
    make("p", isCross ? `Keys and values of the source's ${rows.length} subwords: computed once, and the same at each step.`
      : `A row is added with each token: ${read} now. The ${read - 1} before are not computed again, since no token sees what comes later.`,
    root, "caption");
    for (const [name, kept] of [["keys", keys], ["values", values]]) {
      make("h4", name, root);
      grid(root, { name: `cache: ${name}`, rows, columns: numbered(kept[0].length).map(([i]) => String(i + 1)), values: kept });
    }
  },
};
