// Ten short steps through the page, each a question that it answers.

const TOUR = [
  ["What does a Transformer do?", "It turns subwords into subwords. Below each stands how sure the model is. Type another sentence, if you like.",
    { view: "words" }],
  ["What is in it?", "An encoder reads the source, a decoder writes. Choose boxes: every one of them is numbers in, numbers out.",
    { view: "map", box: "encoder/layer_0/self_attention", part: "weights" }],
  ["Where does a word look?", "Each small map is a head. Which of them look straight at the word that is translated next?",
    { view: "heads", kind: "cross", head: "0" }],
  ["How does it know where to look?", "A query is compared with every key; the products become weights. Follow the four tables.",
    { view: "head", kind: "cross", head: "0", query: "2" }],
  ["Why divide by √d_k?", `A sum of ${data.config.d_k} products is large, and the softmax of large numbers is all or nothing: hardly any gradient flows back. `
    + "The line above the tables has the largest weight with and without. Untick the switch, and compare p of the whole translation.",
    { view: "head", kind: "encoder", layer: "0", head: "0", query: "2", off: "scale" }],
  ["Why mask the future?", "In training the whole translation is there. Without the mask a word could look at its own answer: the line above the tables says how much it would.",
    { view: "head", kind: "decoder", layer: "0", head: "0", query: "3" }],
  ["What do positions do?", "Without them a sentence is a bag of words. Tick “shuffle the words” as well: the translation stays.",
    { view: "words", off: "positions" }],
  ["Does order matter, then?", "With positions, yes. Below the sentence stand its words, shuffled: to the model that is another sentence, with another translation.", { view: "words", off: "order" }],
  ["How is the next word chosen?", "One token at a time. Go forwards and back: with each the cache grows by a row.", { view: "decoder", token: "4" }],
  ["Is the most probable word always taken?", "No: several translations grow side by side. Move alpha to 2 and the beam to 1, and see what changes.",
    { view: "beam" }],
];

function drawTour() {
  const root = element("tour");
  if (root.dataset.step === at.tour) return; // not drawn again, as it is read out when it changes
  root.dataset.step = at.tour;
  const n = at.tour === "" ? -1 : chosenOf("tour", TOUR.length);
  const key = root.contains(document.activeElement) && document.activeElement.dataset.key;
  root.replaceChildren();
  const button = (text, to) => {
    const one = make("button", text, root);
    one.dataset.key = text;
    one.addEventListener("click", () => go(to < 0 || to >= TOUR.length ? { tour: "" } : { off: "", ...TOUR[to][2], tour: String(to) }));
  };
  if (n < 0) button("Take the tour: ten questions", 0);
  else {
    const [question, answer] = TOUR[n];
    const text = make("p", undefined, root);
    make("strong", `${n + 1} of ${TOUR.length}: ${question} `, text);
    make("span", answer, text);
    if (n) button("‹ before", n - 1);
    button(n + 1 < TOUR.length ? "next ›" : "end", n + 1);
    if (n + 1 < TOUR.length) button("skip the tour", -1);
  }
  if (key) (root.querySelector(`[data-key="${key}"]`) ?? root.querySelector("button")).focus();
}
