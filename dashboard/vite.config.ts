import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

// One script and one style sheet: the whole page is small, and each file more is a round trip.
export default defineConfig({
  plugins: [svelte()],
  build: {
    target: 'es2022',
    cssCodeSplit: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  // For work on the page: `npm run dev` beside a node whose API listens here.
  server: {
    proxy: {
      '/client': 'http://127.0.0.1:8788',
      '/session': 'http://127.0.0.1:8788',
    },
  },
})
