// One process and one browser run the tests of all pages, because starting them takes as long as many of these tests.
import './pages/health.ts';
import './pages/page.ts';
import './pages/process.ts';
import './pages/reading.ts';
import './pages/search.ts';
import './pages/views.ts';
import './pages/what-if.ts';
