// The credits page's list of pictures.

import { byId, element } from "./dom.js";
import { credit, recall } from "./imagery.js";

const seen = recall();
byId("none").hidden = seen.length > 0;
byId("seen").append(...seen.map(({ attribution, country, month }) => {
  const item = element("li");
  item.append(...credit(attribution, month), country ? ` · ${country}` : "");
  return item;
}));
