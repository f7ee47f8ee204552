// The model changed: switches, and what the translation was before.

const SWITCHES = { scale: "no division by √d_k", mask: "no mask", positions: "no positions", order: "words reversed" };
const KNOWN = /^(scale|mask|positions|order|(out|only):\w+\/layer_\d+\/\w+_attention:\d+)$/;

// A head's is "out:decoder/layer_1/cross_attention:2".
const switched = () => at.off.split(",").filter(name => KNOWN.test(name));

function switchName(name) {
  const [what, , h] = name.split(":");
  return SWITCHES[name] ?? `${what === "out" ? "without" : "only"} head ${Number(h) + 1}`;
}

function optionsOf(names) {
  const beam = chosenOf("beam", 9) || 1;
  const options = { beam, nbest: beam, alpha: Number(at.alpha) || 0, out: {} };
  for (const name of names) {
    const [what, block, h] = name.split(":");
    if (block) options.out[block] = range(HEADS).filter(n => (n === Number(h)) === (what === "out"));
    else options[what] = false;
  }
  return options;
}

function reversed(ids) {
  const words = [];
  for (const id of ids.filter(one => one !== EOS)) {
    if (!words.length || model.source.pieces[id].startsWith(SPACE)) words.unshift([]);
    words[0].push(id);
  }
  return [...words.flat(), ...ids.filter(one => one === EOS)];
}

function whatIf(root, names) {
  make("p.key", "What if? The model translates again.", root);
  const on = switched();
  const values = [["", "as trained"], ...names.map(name => [name, switchName(name)])];
  chips(root, "switch", values, on.length ? on : "", name => {
    const others = on.filter(one => one !== name);
    go({ off: name && (on.includes(name) ? others : [...others, name]).join() });
  });
}

function writeMarked(root, text, other) {
  const line = make("p.text", undefined, root);
  const known = other.split(" ");
  for (const word of text.split(" ")) {
    make(known.includes(word) ? "span" : "mark", word, line);
    line.append(" ");
  }
}

function drawChange() {
  const root = emptied("changed");
  if (!now?.unchanged) return;
  const { text, log_prob } = now.unchanged;
  const changes = switched().map(switchName).join("; ");
  make("span", `Changed: ${changes}. As trained it wrote “${text}”, ${share(Math.exp(log_prob))}; now: `, root);
  writeMarked(root, now.text, text);
  make("button.link", "Back to as trained", root, { click: () => go({ off: "" }), "data-key": "as trained" });
}
