// What stands above the figure: what the model is and how good, examples, and notes about the words typed.

const KNOWN = new Set(data.words.map(word => word.toLowerCase()));

/* Says in a sentence what the model is, what it was trained on, and how good it is: all of it from the run's records. */
function tellModel() {
  const root = element("about");
  const { parameters, pairs, corpus, words, languages, score, bits, difference, smoothing, examples } = data.about;
  const strong = text => make("b", text, root);
  const plain = text => root.append(text);
  plain("The model of ");
  make("i", "Attention Is All You Need", root);
  plain(", small enough for a page: ");
  strong(`${rounded(parameters)} parameters`);
  const count = pairs ? `${pairs.toLocaleString("en")} ` : "";
  const isGrammar = data.words.length > 0;
  plain(", trained on ");
  strong(`${count}${isGrammar || !languages[0] ? "" : `${SOURCE}–${TARGET} `}sentence pairs`);
  if (isGrammar) plain(` that a small ${SOURCE}–${TARGET} grammar${words ? ` of ${words} words` : ""} made`);
  else if (corpus) plain(` of ${corpus}`);
  if (score) {
    const sentences = score.sentences.toLocaleString("en");
    plain("; ");
    if (isGrammar) {
      plain("it gets ");
      strong(`${short(score.exact).replace(/\.?0+$/, "")} % of ${sentences} new sentences right to the letter`).title = "exact match on the test split";
    } else {
      plain("its translations of ");
      strong(`${sentences} ${score.split} sentences have ${score.bleu.toFixed(1)} BLEU`).title = score.signature;
    }
    if (isGrammar) plain(", and outside that grammar it is lost");
  }
  plain(".");
  const exactly = "Matrices are stored with 16 bits a number, which are exactly the run’s.";
  const close = `Matrices are rounded to ${bits} bits a number`
    + (examples.length ? `: in the translations of the ${examples.length} examples no log-probability differs from the run’s by more than ${Number(difference.toPrecision(2))}.` : ".");
  const smoothed = smoothing ? ` Even a sure word has some ${Math.round(100 * (1 - smoothing))} %: trained with label smoothing of ${smoothing}, the model was taught to keep the rest back.` : "";
  element("footer").textContent = `Everything on this page is computed in it, with the parameters of step ${model.step}. ${difference === 0 && bits === 16 ? exactly : close}${smoothed}`;
}

/* Returns a number in words: 1.15 million. */
const rounded = count => count < 100_000 ? count.toLocaleString("en") : `${Number((count / 1e6).toPrecision(3))} million`;

function drawExamples() {
  redrawn(element("examples"), () => {
    for (const { title, source } of data.about.examples) {
      const one = button(element("examples"), title, () => {
        element("source").value = source;
        go({ s: source, pin: "", word: "", other: "", off: "" });
      });
      one.setAttribute("aria-pressed", at.s === source);
    }
  });
}

/* Offers ends of the last word typed, and says which words were split or are not known. */
function tellWords(text) {
  const root = element("notes");
  root.replaceChildren();
  const [, before, word] = text.match(/^(.*?)([^\s]*)$/s);
  const capital = /^\p{Lu}/u.test(word);
  const found = !word ? [] : COMPLETIONS.map(one => capital ? one[0].toUpperCase() + one.slice(1) : one)
    .filter(one => one.startsWith(word) && one !== word).slice(0, 6);
  for (const one of found) {
    button(root, one, () => {
      element("source").value = before + one;
      element("source").focus();
      go({ s: before + one });
    }, `complete ${one}`, "link");
  }
  const words = model.tokenizer.normalise(text).split(/[\s,.?!;:]+/).filter(Boolean);
  const unknown = data.words.length ? words.filter(one => !KNOWN.has(one.toLowerCase())) : [];
  const split = words.filter(one => !unknown.includes(one) && model.tokenizer.encode(one).length > 1);
  const listed = (told, list) => list.length ? `${told}: ${[...new Set(list)].join(", ")}. ` : "";
  make("span", listed("Not in the training sentences, so expect nonsense", unknown)
    + listed("Not in the vocabulary as one piece, so it is split", split), root);
}

/* Lets the reader choose the colours; the address has the choice. */
function drawTheme() {
  document.documentElement.dataset.theme = at.theme;
  redrawn(element("theme"), () => {
    choice(element("theme"), "Colours", [["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]], at.theme, value => go({ theme: value }));
  });
}
