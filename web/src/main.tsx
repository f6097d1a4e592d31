// Begins the page.

import { render } from "preact";
import { begin, keepTime } from "./state/control.ts";
import "./style/base.css";
import "./style/parts.css";
import { App } from "./view/app.tsx";

const page = document.getElementById("page");
if (page) {
  render(<App />, page);
  keepTime();
  void begin();
}
