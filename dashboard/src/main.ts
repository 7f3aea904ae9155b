import { mount } from 'svelte'
import 'uplot/dist/uPlot.min.css'
import './app.css'
import App from './App.svelte'

// The page says its name while the rest is on its way.
const target = document.getElementById('app')!
target.replaceChildren()
mount(App, { target })
