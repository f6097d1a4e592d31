// One script, one sheet of styles and one page, under names that stay: what is committed differs where the source does.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  publicDir: "public",
  build: {
    outDir: "../voda/dashboard/static",
    emptyOutDir: true,
    target: "es2022",
    // A polyfill would be an inline script, which the page's policy refuses.
    modulePreload: false,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    rolldownOptions: {
      output: {
        entryFileNames: "dashboard.js",
        assetFileNames: "dashboard.[ext]",
        codeSplitting: false,
      },
    },
  },
});
